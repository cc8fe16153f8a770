// SPDX-License-Identifier: Apache-2.0
/// \file
/// Where the definitions of functions that depend on no template argument live.
#pragma once

/// Marks definitions in the `-inl.hpp` files. By default (target `vlbatch::vlbatch`) headers include them and they are inline. Linking
/// `vlbatch::cpu` defines `VLBATCH_COMPILED_CORE`: then they are compiled once, in that library, and a user's file compiles in a fraction
/// of the time. All files of a program that use vlbatch must agree, as they do when they link the same target.
#ifdef VLBATCH_COMPILED_CORE
#define VLBATCH_INLINE
#else
#define VLBATCH_INLINE inline
#endif
