# SPDX-License-Identifier: Apache-2.0
# Warnings live on a target of their own that is never exported: users choose their own.
add_library(vlbatch_warnings INTERFACE)
target_compile_options(vlbatch_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast
                       -Wnon-virtual-dtor -Woverloaded-virtual $<$<BOOL:${VLBATCH_WARNINGS_AS_ERRORS}>:-Werror>)
# g++ 12 sees overlapping copies in std::string concatenation where there are none (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(vlbatch_warnings INTERFACE -Wno-restrict)
endif()
