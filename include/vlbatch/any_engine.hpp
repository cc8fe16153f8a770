// SPDX-License-Identifier: Apache-2.0
/// \file
/// An engine of any type behind one interface: the edge for programs, servers and bindings.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vlbatch/engine.hpp"

namespace vlbatch::inline v0 {

/// Owns an engine of any type. One virtual call a step; nothing inside is virtual. Thread safety is the engine's. Movable.
class any_engine {
 public:
  /// Builds `engine<Model, Kv, Policy, Parts>` from its arguments.
  template <class Model, class Kv, class Policy, class Parts = parts<>>
  [[nodiscard]] static any_engine make(Model model, Kv kv, Policy policy, Parts p = {}, const engine_options& options = {}) {
    using engine_type = engine<Model, Kv, Policy, Parts>;
    return any_engine(std::make_unique<holder<engine_type>>(std::string(Policy::name()), std::string(Kv::name()),
                                                            std::string(Parts::vision_type::name()), std::move(model), std::move(kv),
                                                            std::move(policy), std::move(p), options));
  }

  /// Name of the policy.
  [[nodiscard]] const std::string& policy() const noexcept { return self_->policy; }
  /// Name of the KV cache.
  [[nodiscard]] const std::string& kv() const noexcept { return self_->kv; }
  /// Name of the vision lane.
  [[nodiscard]] const std::string& vision() const noexcept { return self_->vision; }

  /// As engine::submit.
  seq_id submit(request r) { return self_->submit(std::move(r)); }
  /// As engine::cancel.
  void cancel(seq_id id) { self_->cancel(id); }
  /// As engine::take.
  [[nodiscard]] std::optional<result> take(seq_id id) { return self_->take(id); }
  /// As engine::generate.
  [[nodiscard]] std::vector<result> generate(std::span<const request> requests) { return self_->generate(requests); }
  /// As engine::step.
  step_result step() { return self_->step(); }
  /// As engine::run_until_idle.
  void run_until_idle() { self_->run_until_idle(); }
  /// As engine::idle.
  [[nodiscard]] bool idle() const { return self_->idle(); }
  /// As engine::stats.
  [[nodiscard]] const engine_stats& stats() const { return self_->stats(); }
  /// Usage of the KV cache.
  [[nodiscard]] kv_usage usage() { return self_->usage(); }

 private:
  struct base {
    base(std::string p, std::string k, std::string v) : policy(std::move(p)), kv(std::move(k)), vision(std::move(v)) {}
    base(const base&) = delete;
    base& operator=(const base&) = delete;
    virtual ~base() = default;
    virtual seq_id submit(request r) = 0;
    virtual void cancel(seq_id id) = 0;
    virtual std::optional<result> take(seq_id id) = 0;
    virtual std::vector<result> generate(std::span<const request> requests) = 0;
    virtual step_result step() = 0;
    virtual void run_until_idle() = 0;
    [[nodiscard]] virtual bool idle() const = 0;
    [[nodiscard]] virtual const engine_stats& stats() const = 0;
    virtual kv_usage usage() = 0;
    std::string policy, kv, vision;
  };
  template <class Engine>
  struct holder final : base {
    template <class... Args>
    holder(std::string p, std::string k, std::string v, Args&&... args)
        : base(std::move(p), std::move(k), std::move(v)), engine_(std::forward<Args>(args)...) {}
    seq_id submit(request r) override { return engine_.submit(std::move(r)); }
    void cancel(seq_id id) override { engine_.cancel(id); }
    std::optional<result> take(seq_id id) override { return engine_.take(id); }
    std::vector<result> generate(std::span<const request> requests) override { return engine_.generate(requests); }
    step_result step() override { return engine_.step(); }
    void run_until_idle() override { engine_.run_until_idle(); }
    [[nodiscard]] bool idle() const override { return engine_.idle(); }
    [[nodiscard]] const engine_stats& stats() const override { return engine_.stats(); }
    kv_usage usage() override { return engine_.kv().usage(); }
    Engine engine_;
  };
  explicit any_engine(std::unique_ptr<base> p) noexcept : self_(std::move(p)) {}

  std::unique_ptr<base> self_;
};

}  // namespace vlbatch::inline v0
