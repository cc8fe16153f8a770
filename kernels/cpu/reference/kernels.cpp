// SPDX-License-Identifier: Apache-2.0
#include "cpu/reference/reference.hpp"

namespace vlbatch::inline v0::reference {

const cpu_kernels& kernels() noexcept {
  static constexpr cpu_kernels table{
      .level = cpu_level::reference,
      .linear = linear,
      .layer_norm = layer_norm,
      .rms_norm = rms_norm,
      .silu_mul = silu_mul,
      .embed = embed,
      .inject = inject,
      .rope_store = rope_store,
      .causal_attention = causal_attention,
      .full_attention = full_attention,
      .patches = patches,
      .add_rows = add_rows,
      .pixel_shuffle = pixel_shuffle,
      .gather_rows = gather_rows,
  };
  return table;
}

}  // namespace vlbatch::inline v0::reference
