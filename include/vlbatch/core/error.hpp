// SPDX-License-Identifier: Apache-2.0
/// \file
/// Exceptions of the library. Every text names the thing that is wrong (file, tensor, key, request) and both values: found and expected.
#pragma once

#include <stdexcept>
#include <string>

namespace vlbatch::inline v0 {

/// Base of everything the library throws on bad input. One line of text.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file is missing, truncated, malformed or disagrees with another one.
class file_error : public error {
 public:
  using error::error;
};

/// A model folder describes something that this build cannot run (unknown architecture, missing key, wrong shape or dtype).
class model_error : public error {
 public:
  using error::error;
};

/// An image cannot be decoded or exceeds a limit.
class image_error : public error {
 public:
  using error::error;
};

/// Arguments of a call contradict each other or the object they are given to.
class invalid_argument : public error {
 public:
  using error::error;
};

/// A plan broke the policy contract. Nothing of it was carried out; the engine is as it was before the step.
class policy_error : public error {
 public:
  using error::error;
};

/// Work waits, nothing runs or is in flight, no arrival is to come, and the policy planned nothing and set no `wake_at`.
class policy_stalled : public error {
 public:
  using error::error;
};

/// A device call failed (memory, launch, transfer).
class device_error : public error {
 public:
  using error::error;
};

}  // namespace vlbatch::inline v0
