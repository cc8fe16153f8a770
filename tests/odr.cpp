// SPDX-License-Identifier: Apache-2.0
// Linked into every test program: a definition in a header that is not inline would be a duplicate symbol.
#include <vlbatch/vlbatch.hpp>
