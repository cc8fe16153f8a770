# SPDX-License-Identifier: Apache-2.0
# Writes the commit into OUT, at every build and only if it changed: what was configured long ago is not what was built.
set(git "unknown")
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE rc)
  if(rc EQUAL 0)
    set(git ${described})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define VLBATCH_GIT \"${git}\"\n")
