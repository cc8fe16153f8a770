#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the build tree, moves the installed tree, and builds examples/consumer against it; or takes the source tree in by add_subdirectory.
# usage: check.sh installed|subdirectory SOURCE BUILD WORK CXX [MODEL PICTURE]
set -euo pipefail
kind=$1 source=$2 build=$3 work=$4 cxx=$5
rm -rf "$work"
mkdir -p "$work"
if [ "$kind" = installed ]; then
  # A prefix with a space and another library folder: both have broken other projects' config files.
  cmake --install "$build" --prefix "$work/first place" >/dev/null
  mv "$work/first place" "$work/moved here"
  cmake -S "$source/examples/consumer" -B "$work/build" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/moved here" >/dev/null
  consumer="$work/build/consumer"
else
  mkdir -p "$work/project"
  cat > "$work/project/CMakeLists.txt" <<TEXT
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES CXX)
add_subdirectory("$source" vlbatch)
if(TARGET vlbatch-experiment OR TARGET test_core)
  message(FATAL_ERROR "programs and tests must be off inside another project")
endif()
add_executable(consumer "$source/examples/consumer/main.cpp")
target_link_libraries(consumer PRIVATE vlbatch::cpu)
TEXT
  launcher=()
  command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  cmake -S "$work/project" -B "$work/build" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_BUILD_TYPE=Release "${launcher[@]}" >/dev/null
  consumer="$work/build/consumer"
fi
cmake --build "$work/build" -- --quiet
"$consumer"
if [ $# -gt 5 ]; then "$consumer" "${@:6}"; fi
