// Products by groups of four warps, of tiles in shared memory (wgmma).
#include "emulated_gpu/error.h"
#include "emulated_gpu/ptx/operations.h"
#include "emulated_gpu/ptx/tensor_map.h"

namespace emulated {

namespace {

constexpr size_t kDepth = 16, kRows = 16;  // of a product, and of a warp's part of it
constexpr size_t kPattern = 1024;          // bytes of eight rows

// A tile as a descriptor says it, rows of 128 bytes as the copy engine writes them.
class Tile {
 public:
  Tile(Warp& warp, uint64_t descriptor, bool transposed)
      : warp_(warp),
        start_((descriptor & 0x3FFF) << 4),
        leading_((descriptor >> 16 & 0x3FFF) << 4),
        stride_((descriptor >> 32 & 0x3FFF) << 4),
        transposed_(transposed) {
    if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0) {
      warp.fail_at(0, "the emulated GPU knows only tiles with the 128-byte swizzle that begin with a pattern");
    }
  }

  // numbers[k * count + line], for lines first to first + count of the product's outer dimension; count is a multiple
  // of 8. Where the tile's rows run along the inner dimension, a pattern has 8 lines; where they run along the outer
  // one (transposed), 8 places of the inner one and 64 lines.
  void read(float* numbers, size_t first, size_t count) {
    for (size_t k = 0; k < kDepth; k += transposed_ ? 1 : 8) {
      for (size_t line = 0; line < count; line += transposed_ ? 8 : 1) {
        const size_t outer = first + line;
        const size_t address = transposed_
                                   ? start_ + outer / 64 * leading_ + k / 8 * stride_ + k % 8 * 128 + outer % 64 * 2
                                   : start_ + outer / 8 * stride_ + outer % 8 * 128 + k * 2;
        uint16_t piece[8];
        std::memcpy(piece, warp_.cluster().at(warp_.place_in_cluster(swizzled(address), sizeof piece, 16, 0)),
                    sizeof piece);
        for (size_t i = 0; i < 8; ++i) {
          numbers[transposed_ ? k * count + line + i : (k + i) * count + line] = from_bf16(piece[i]);
        }
      }
    }
    const size_t last = first + count - 1;
    if (transposed_) {
      for (size_t block = first / 64; block <= last / 64; ++block) {
        for (size_t k = 0; k < kDepth; k += 8) {
          note(start_ + block * leading_ + k / 8 * stride_);
        }
      }
    } else {
      for (size_t pattern = first / 8; pattern <= last / 8; ++pattern) {
        note(start_ + pattern * stride_);
      }
    }
  }

 private:
  // The pattern around this address is read until the product is waited for.
  void note(size_t address) {
    warp_.begin_product_reads(warp_.place_in_cluster(address / kPattern * kPattern, kPattern, kPattern, 0), kPattern);
  }

  Warp& warp_;
  size_t start_, leading_, stride_;
  bool transposed_;
};

// {sums}, a, b, add, sign of a, sign of b, transposed a, transposed b: sums [64, kCols] = or += a [64, 16] b [16,
// kCols]. Lane 4 g + t of warp w of the group holds in sums[4 j + i] row 16 w + g (i < 2) or 16 w + g + 8 and column 8
// j + 2 t + i % 2.
template <size_t kCols>
void multiply(Warp& warp, const Instruction& i, uint32_t lanes) {
  warp.require_members(kAllLanes, lanes);
  if (i.at[4] != 1 || i.at[5] != 1) {
    warp.fail_at(0, "the emulated GPU knows no group products with another sign");
  }
  alignas(64) float a[kDepth * kRows], b[kDepth * kCols];
  alignas(64) static thread_local float sums[kRows][kCols];
  Tile(warp, warp.lanes<uint64_t>(i.at[1])[0], i.at[6] != 0).read(a, warp.number() % 4 * kRows, kRows);
  Tile(warp, warp.lanes<uint64_t>(i.at[2])[0], i.at[7] != 0).read(b, 0, kCols);
  const bool add = *warp.lanes<uint32_t>(i.at[3]) != 0;
  const std::span<const uint32_t> registers = warp.list(i.at[0], kCols / 2);
  const auto for_sums = [&](const auto& run) {
    for (size_t r = 0; r < registers.size(); ++r) {
      float* const values = warp.lanes<float>(registers[r]);
      for (size_t lane = 0; lane < kLanes; ++lane) {
        run(values[lane], sums[lane / 4 + r % 4 / 2 * 8][r / 4 * 8 + lane % 4 * 2 + r % 2]);
      }
    }
  };
  for_sums([&](float value, float& sum) { sum = add ? value : 0; });
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t k = 0; k < kDepth; ++k) {
      const float factor = a[k * kRows + row];
#pragma GCC ivdep
      for (size_t col = 0; col < kCols; ++col) {
        sums[row][col] += factor * b[k * kCols + col];
      }
    }
  }
  for_sums([&](float& value, float sum) { value = sum; });
}

template <size_t kCols>
void add_product(Operations& all) {
  all["wgmma.mma_async.sync.aligned.m64n" + std::to_string(kCols) + "k16.f32.bf16.bf16"] = {multiply<kCols>,
                                                                                            "vllpnnnn"};
}

}  // namespace

void add_group_products(Operations& all) {
  add_product<128>(all);
  add_product<192>(all);
  add_product<256>(all);
  all["wgmma.fence.sync.aligned"] = {[](Warp&, const Instruction&, uint32_t) {}, ""};
  all["wgmma.commit_group.sync.aligned"] = {[](Warp& warp, const Instruction&, uint32_t) { warp.commit_products(); },
                                            ""};
  all["wgmma.wait_group.sync.aligned"] = {
      [](Warp& warp, const Instruction& i, uint32_t) { warp.await_products(i.at[0]); }, "n"};
}

}  // namespace emulated
