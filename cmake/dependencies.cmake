# SPDX-License-Identifier: Apache-2.0
# What the compiled library links, from the distribution's packages. The config package includes this file too, so that a static library finds the same.
include(CMakeFindDependencyMacro)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(PkgConfig REQUIRED)

# Libraries whose Debian packages bring pkg-config files alone: pkg-config name, target.
function(vlbatch_pkg_target module target)
  if(NOT TARGET ${target})
    string(MAKE_C_IDENTIFIER ${module} prefix)
    pkg_check_modules(VLBATCH_${prefix} REQUIRED IMPORTED_TARGET GLOBAL ${module})
    add_library(${target} ALIAS PkgConfig::VLBATCH_${prefix})
  endif()
endfunction()
vlbatch_pkg_target(libhwy hwy::hwy)
vlbatch_pkg_target(libpcre2-8 PCRE2::8BIT)
vlbatch_pkg_target(libwebp WebP::WebP)
vlbatch_pkg_target(libxxhash xxHash::xxHash)
