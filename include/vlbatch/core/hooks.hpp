// SPDX-License-Identifier: Apache-2.0
/// \file
/// Optional members of policies and observers: called if they exist, free if not.
#pragma once

/// Each function calls the member of its name on the first argument if there is one that takes the others.
namespace vlbatch::inline v0::hook {

/// A prepared request joined the queue.
template <class T, class... Args>
void on_arrival(T& t, const Args&... args) {
  if constexpr (requires { t.on_arrival(args...); }) t.on_arrival(args...);
}
/// A tile of an image became ready.
template <class T, class... Args>
void on_encoded(T& t, const Args&... args) {
  if constexpr (requires { t.on_encoded(args...); }) t.on_encoded(args...);
}
/// A step was computed.
template <class T, class... Args>
void on_step(T& t, const Args&... args) {
  if constexpr (requires { t.on_step(args...); }) t.on_step(args...);
}
/// A sequence got a token.
template <class T, class... Args>
void on_token(T& t, const Args&... args) {
  if constexpr (requires { t.on_token(args...); }) t.on_token(args...);
}
/// A running sequence lost its KV.
template <class T, class... Args>
void on_evict(T& t, const Args&... args) {
  if constexpr (requires { t.on_evict(args...); }) t.on_evict(args...);
}
/// A sequence ended with an answer (policies), or a request ended in any way (observers).
template <class T, class... Args>
void on_finish(T& t, const Args&... args) {
  if constexpr (requires { t.on_finish(args...); }) t.on_finish(args...);
}
/// A sequence ended without an answer.
template <class T, class... Args>
void on_drop(T& t, const Args&... args) {
  if constexpr (requires { t.on_drop(args...); }) t.on_drop(args...);
}

}  // namespace vlbatch::inline v0::hook
