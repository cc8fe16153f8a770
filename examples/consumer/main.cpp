// SPDX-License-Identifier: Apache-2.0
// The whole of embedding a vision-language model: load, compose an engine, hand over a list. Usage: consumer [MODEL_FOLDER PICTURE...]
#include <cstdio>
#include <vlbatch/vlbatch.hpp>

namespace vb = vlbatch;

int main(int argc, char** argv) {
  std::printf("vlbatch %d.%d.%d, best level %s\n", VLBATCH_VERSION_MAJOR, VLBATCH_VERSION_MINOR, VLBATCH_VERSION_PATCH,
              vb::name_of(vb::cpu{}.level()).data());
  if (argc < 3) return 0;
  const auto model = vb::idefics3<vb::cpu>::load(argv[1]);
  vb::engine e{model, vb::paged_kv{{.bytes = 64 << 20}}, vb::continuous{{.max_num_seqs = 16}}};
  std::vector<vb::request> requests;
  for (int i = 2; i < argc; ++i) {
    vb::request r;
    r.messages = {{.role = "user", .parts = {vb::image_part{std::string(argv[i])}, vb::text_part{"Describe the picture."}}}};
    requests.push_back(r);
  }
  int failed = 0;
  for (const vb::result& r : e.generate(requests)) {
    std::printf("%s:%s\n", vb::name_of(r.outcome), r.outcome == vb::status::finished ? r.text.c_str() : r.reason.c_str());
    failed += r.outcome == vb::status::finished ? 0 : 1;
  }
  return failed;
}
