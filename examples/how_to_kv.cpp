// SPDX-License-Identifier: Apache-2.0
// docs/how_to/add_a_kv_allocator.md shows this file.
#include <cstdio>
#include <vlbatch/vlbatch.hpp>

namespace vb = vlbatch;

//! [allocator]
// A paged cache that keeps a reserve: the last `spare` blocks are never promised to a policy, so that running sequences find room to grow.
class reserved_paged_kv {
 public:
  using view_type = vb::paged_kv_view;  // what the kernels get; the model must be able to run on it

  reserved_paged_kv(const vb::paged_kv::settings& s, std::int32_t spare) : base_(s), spare_(spare) {}

  static constexpr std::string_view name() { return "reserved_paged"; }
  void bind(const vb::kv_binding& b) { base_.bind(b); }
  vb::kv_budget budget() const {
    vb::kv_budget b = base_.budget();
    b.free_blocks = std::max(b.free_blocks - spare_, 0);
    b.total_blocks = std::max(b.total_blocks - spare_, 0);
    return b;
  }
  vb::kv_usage usage() const { return base_.usage(); }
  std::int32_t blocks_of(vb::seq_id id) const { return base_.blocks_of(id); }
  bool reserve(vb::seq_id id, std::int32_t tokens) { return base_.reserve(id, tokens); }
  void release(vb::seq_id id) noexcept { base_.release(id); }
  view_type view(std::span<const vb::seq_id> ids) { return base_.view(ids); }

 private:
  vb::paged_kv base_;
  std::int32_t spare_;
};
static_assert(vb::kv_allocator<reserved_paged_kv>);
//! [allocator]

int main(int argc, char** argv) {
  if (argc < 2) return std::printf("usage: how_to_kv MODEL_FOLDER\n"), 2;
  const auto model = vb::idefics3<vb::cpu>::load(argv[1]);
  vb::engine e{model, reserved_paged_kv{{.blocks = 12, .block_size = 16}, 2}, vb::continuous{}};
  vb::request r;
  r.messages = {{.role = "user", .parts = {vb::text_part{"Hello."}}}};
  r.max_new_tokens = 8;
  const vb::result got = e.generate(std::vector{r}).front();
  std::printf("%s, %d blocks left in use\n", vb::name_of(got.outcome), e.kv().usage().blocks_used);
  return got.outcome == vb::status::finished && e.kv().usage().blocks_used == 0 ? 0 : 1;
}
