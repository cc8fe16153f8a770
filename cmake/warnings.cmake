# SPDX-License-Identifier: Apache-2.0
# Warnings live on a target of their own that is never exported: users choose their own.
add_library(vlbatch_warnings INTERFACE)
target_compile_options(vlbatch_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast
                       -Wnon-virtual-dtor -Woverloaded-virtual $<$<BOOL:${VLBATCH_WARNINGS_AS_ERRORS}>:-Werror>)
