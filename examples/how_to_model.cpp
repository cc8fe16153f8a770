// SPDX-License-Identifier: Apache-2.0
// docs/how_to/add_a_model.md shows this file.
#include <cstdio>
#include <cstdlib>
#include <vlbatch/vlbatch.hpp>

namespace vb = vlbatch;

//! [model]
// The smallest model that the engine can run: it repeats the prompt, byte by byte. A real one computes keys and values; this one keeps
// token ids in the cache.
class echo_model {
 public:
  struct workspace {
    std::vector<float> logits;
    std::int32_t rows = 0;
  };
  struct ticket {};

  const vb::model_info& info() const { return info_; }
  vb::prepared_request prepare(const vb::request& r) const {
    vb::prepared_request p;
    for (const vb::message& m : r.messages) {
      for (const vb::message_part& part : m.parts) {
        const auto* text = std::get_if<vb::text_part>(&part);
        if (text == nullptr) throw vb::invalid_argument("echo: pictures cannot be echoed");
        for (const char c : text->text) p.tokens.push_back(static_cast<unsigned char>(c));
      }
    }
    return p;
  }
  workspace make_workspace(std::int32_t) const { return {}; }
  std::shared_ptr<std::byte> allocate(std::int64_t bytes) const {
    return {static_cast<std::byte*>(std::calloc(static_cast<std::size_t>(bytes), 1)), std::free};
  }
  void encode(workspace&, std::span<const vb::tile_input>) const {}
  ticket forward(workspace& w, const vb::forward_input& in, const vb::paged_kv_view& kv) const {
    auto* cache = reinterpret_cast<float*>(kv.data);
    const auto slot = [&](std::int32_t s, std::int32_t position) -> float& {
      return cache[kv.offset(kv.block_of(s, position), 0, 0, 0) + position % kv.block_size];
    };
    w.rows = static_cast<std::int32_t>(in.logit_rows.size());
    w.logits.assign(static_cast<std::size_t>(w.rows) * 256, 0.0F);
    std::size_t wanted = 0;
    for (std::int32_t s = 0; s < in.map.num_sequences; ++s) {
      const auto us = static_cast<std::size_t>(s);
      for (std::int32_t i = 0; i < in.map.num_tokens[us]; ++i) {
        const std::int32_t row = in.map.row_begin[us] + i;
        const std::int32_t position = in.map.context[us] + i;
        slot(s, position) = static_cast<float>(in.token_ids[static_cast<std::size_t>(row)]);
        if (wanted == in.logit_rows.size() || in.logit_rows[wanted] != row) continue;
        // The first answer token is the first of the prompt; the prompt ends with byte 0.
        std::int32_t length = 0;
        while (slot(s, length) != 0.0F) ++length;
        w.logits[wanted * 256 + static_cast<std::size_t>(slot(s, position - length))] = 1.0F;
        ++wanted;
      }
    }
    return {};
  }
  void wait(workspace&, ticket) const {}
  vb::matrix_view<const float> logits(workspace& w) const { return {w.logits.data(), w.rows, 256}; }
  void append_text(std::int32_t token, std::string& out) const { out.push_back(static_cast<char>(token)); }

 private:
  vb::model_info info_{.name = "echo",
                       .kv = {.num_layers = 1, .num_kv_heads = 1, .head_dim = 1},
                       .hidden_size = 1,
                       .vocab_size = 256,
                       .max_positions = 256,
                       .eos_tokens = {0}};
};
static_assert(vb::vlm_model<echo_model>);
static_assert(vb::runs_on<echo_model, vb::paged_kv_view>);
//! [model]

int main() {
  vb::engine e{echo_model{}, vb::paged_kv{{.blocks = 16, .block_size = 16}}, vb::continuous{}};
  std::vector<vb::request> requests(2);
  requests[0].messages = {{.role = "user", .parts = {vb::text_part{std::string("hello") + '\0'}}}};
  requests[1].messages = {{.role = "user", .parts = {vb::text_part{std::string("a longer text") + '\0'}}}};
  const std::vector<vb::result> r = e.generate(requests);
  std::printf("%s | %s\n", r[0].text.c_str(), r[1].text.c_str());
  return r[0].text == "hello" && r[1].text == "a longer text" ? 0 : 1;
}
