// SPDX-License-Identifier: Apache-2.0
/// \file
/// Everything, in one include. Includes only.
#pragma once

#include "vlbatch/any_engine.hpp"
#include "vlbatch/backend/cpu.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/batching/padded_static.hpp"
#include "vlbatch/batching/sequential.hpp"
#include "vlbatch/batching/static_batching.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/io/image.hpp"
#include "vlbatch/io/safetensors.hpp"
#include "vlbatch/io/tokenizer.hpp"
#include "vlbatch/kv/contiguous.hpp"
#include "vlbatch/kv/paged.hpp"
#include "vlbatch/kv/statistics_adaptor.hpp"
#include "vlbatch/model/idefics3/idefics3.hpp"
#include "vlbatch/run_loop.hpp"
#include "vlbatch/version.hpp"
#include "vlbatch/vision/async_vision.hpp"
#include "vlbatch/vision/inline_vision.hpp"
