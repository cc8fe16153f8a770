// SPDX-License-Identifier: Apache-2.0
// What the tests of decoding, resampling and preprocessing share with tests/golden/make_image_goldens.py.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "vlbatch/core/image_buffer.hpp"

namespace vlbatch_tests {

/// SHA-256 (FIPS 180-4) of everything that was added, so that reference hashes can be made by any tool.
class sha256 {
 public:
  void add(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    total_ += size;
    while (size > 0) {
      const std::size_t n = std::min(size, block_.size() - fill_);
      std::copy_n(bytes, n, block_.begin() + static_cast<std::ptrdiff_t>(fill_));
      fill_ += n;
      bytes += n;
      size -= n;
      if (fill_ == block_.size()) compress();
    }
  }

  [[nodiscard]] std::string hex() {
    const std::uint64_t bits = total_ * 8;
    const std::uint8_t one = 0x80, zero = 0;
    add(&one, 1);
    while (fill_ != 56) add(&zero, 1);
    for (int shift = 56; shift >= 0; shift -= 8) {
      const auto byte = static_cast<std::uint8_t>(bits >> shift);
      add(&byte, 1);
    }
    std::string out;
    for (const std::uint32_t word : state_) {
      for (int shift = 28; shift >= 0; shift -= 4) out += "0123456789abcdef"[(word >> shift) & 15U];
    }
    return out;
  }

 private:
  void compress() {
    static constexpr std::array<std::uint32_t, 64> k = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
        0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
        0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
        0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
        0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
        0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    std::array<std::uint32_t, 64> w;
    for (std::size_t i = 0; i < 16; ++i) {
      w[i] = 0;
      for (std::size_t b = 0; b < 4; ++b) w[i] = w[i] << 8 | block_[4 * i + b];
    }
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] + (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    std::array<std::uint32_t, 8> s = state_;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t t1 =
          s[7] + (std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
      const std::uint32_t t2 =
          (std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
      s = {t1 + t2, s[0], s[1], s[2], s[3] + t1, s[4], s[5], s[6]};
    }
    for (std::size_t i = 0; i < 8; ++i) state_[i] += s[i];
    fill_ = 0;
  }

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> block_{};
  std::size_t fill_ = 0;
  std::uint64_t total_ = 0;
};

[[nodiscard]] inline std::string sha256_of(const void* data, std::size_t size) {
  sha256 h;
  h.add(data, size);
  return h.hex();
}
[[nodiscard]] inline std::string sha256_of(const vlbatch::image_buffer& picture) {
  return sha256_of(picture.pixels.data(), picture.pixels.size());
}

/// `picture` of the script: even seeds are smooth waves with some noise, odd seeds noise alone.
[[nodiscard]] inline vlbatch::image_buffer test_picture(std::int32_t width, std::int32_t height, std::uint32_t seed) {
  vlbatch::image_buffer out{width, height, {}};
  out.pixels.reserve(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3);
  for (std::int32_t y = 0; y < height; ++y) {
    for (std::int32_t x = 0; x < width; ++x) {
      for (std::int32_t c = 0; c < 3; ++c) {
        std::uint32_t h = static_cast<std::uint32_t>(x) * 0x9E3779B1U ^ static_cast<std::uint32_t>(y) * 0x85EBCA77U ^
                          static_cast<std::uint32_t>(c + 1) * 0xC2B2AE3DU ^ seed * 0x27D4EB2FU;
        h ^= h >> 15;
        h *= 0x2C1B3C6DU;
        h ^= h >> 12;
        h *= 0x297A2D39U;
        h ^= h >> 15;
        std::int32_t value = static_cast<std::int32_t>(h & 255U);
        if (seed % 2 == 0) {
          std::int32_t wave = (x * 510 / width * (c + 1) + y * 510 / height * (4 - c)) % 510;
          if (wave > 255) wave = 510 - wave;
          value = std::clamp(wave + static_cast<std::int32_t>(h & 63U) - 32, 0, 255);
        }
        out.pixels.push_back(static_cast<std::uint8_t>(value));
      }
    }
  }
  return out;
}

[[nodiscard]] inline std::filesystem::path golden_folder() { return std::filesystem::path(VLBATCH_SOURCE_DIR) / "tests/golden/image"; }
[[nodiscard]] inline std::filesystem::path samples_folder() { return std::filesystem::path(VLBATCH_SHARED_DIR) / "samples"; }

[[nodiscard]] inline std::vector<std::byte> file_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path.string() + " cannot be opened");
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

[[nodiscard]] inline nlohmann::json golden(const std::string& name) {
  std::ifstream in(golden_folder() / name);
  if (!in) throw std::runtime_error(name + " cannot be opened");
  return nlohmann::json::parse(in);
}

}  // namespace vlbatch_tests
