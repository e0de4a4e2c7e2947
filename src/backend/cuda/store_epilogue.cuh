// Nothing becomes of a tile's sums: the copy engine stores them as they are.
#pragma once

#include "backend/cuda/fused_epilogue.cuh"

namespace tandem::cuda {

template <bool kTransposed>
struct StoreEpilogue {
  static constexpr bool kTransposedB = kTransposed, kWholeRows = false, kBias = false;
  static constexpr int kHelpedRows = 0;

  CUtensorMap result;  // in boxes of kGroupRows rows
  int cols;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __device__ void write(uint32_t slot, const float (&sums)[128], const float2*, const Writer& writer) const {
    writer.write(
        slot, sums, [](int) { return Nothing{}; }, [](Nothing, float a, float b) { return pack(a, b); });
    publish_box();
  }

  using Constants = Nothing;
  __device__ Constants constants() const { return {}; }
  __device__ void prefetch_gates(int, int) const {}
  using Gates = Nothing;
  __device__ Gates fetch_gates(const Chunk&) const { return {}; }

  // A chunk lies in shared memory as the copy engine has it.
  __device__ void finish(const Chunk& chunk, int /*count*/, const Gates&, const Constants&) const {
    store_box(result, chunk.row, chunk.col, chunk.at);
    wait_boxes_read();
  }
#endif
};

}  // namespace tandem::cuda
