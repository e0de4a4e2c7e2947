// What the lanes of a warp do together.
#include <algorithm>
#include <chrono>

#include "emulated_gpu/error.h"
#include "emulated_gpu/ptx/operations.h"

namespace emulated {

namespace {

// The mask of an instruction's members is the same in all of them.
uint32_t members(Warp& warp, uint32_t at, uint32_t lanes) { return warp.lanes<uint32_t>(at)[std::countr_zero(lanes)]; }

enum class Shuffle : uint8_t { up, butterfly, index };

// shfl.sync to|inside, value, which, clamp, members
template <Shuffle kShuffle>
void shuffle(Warp& warp, const Instruction& i, uint32_t lanes) {
  warp.require_members(members(warp, i.at[5], lanes), lanes);
  const uint32_t* const value = warp.lanes<uint32_t>(i.at[2]);
  const uint32_t* const which = warp.lanes<uint32_t>(i.at[3]);
  const uint32_t* const clamp = warp.lanes<uint32_t>(i.at[4]);
  uint32_t results[kLanes] = {}, inside = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) {
      continue;
    }
    const int segment = static_cast<int>(clamp[lane] >> 8 & 31), limit = static_cast<int>(clamp[lane] & 31);
    const int first = lane & segment, last = first | (limit & ~segment), by = static_cast<int>(which[lane] & 31);
    int from = kShuffle == Shuffle::up          ? lane - by
               : kShuffle == Shuffle::butterfly ? lane ^ by
                                                : first | (by & ~segment);
    const bool within = kShuffle == Shuffle::up ? from >= last : from <= last;
    inside |= static_cast<uint32_t>(within) << lane;
    from = within ? from : lane;
    if ((lanes >> from & 1) == 0) {
      warp.fail_at(lane, fmt::format("the value of lane {} is read, which takes no part", from));
    }
    results[lane] = value[from];
  }
  uint32_t* const to = warp.lanes<uint32_t>(i.at[0]);
  for (int lane = 0; lane < kLanes; ++lane) {
    to[lane] = (lanes >> lane & 1) != 0 ? results[lane] : to[lane];
  }
  set_predicate(warp, i.at[1], lanes, inside);
}

void give_to_all(Warp& warp, uint32_t at, uint32_t lanes, uint32_t value) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) {
      warp.lanes<uint32_t>(at)[lane] = value;
    }
  }
}

void ballot(Warp& warp, const Instruction& i, uint32_t lanes) {
  warp.require_members(members(warp, i.at[2], lanes), lanes);
  give_to_all(warp, i.at[0], lanes, *warp.lanes<uint32_t>(i.at[1]) & lanes);
}

void elect(Warp& warp, const Instruction& i, uint32_t lanes) {
  warp.require_members(members(warp, i.at[1], lanes), lanes);
  set_predicate(warp, i.at[0], lanes, lanes & (~lanes + 1));
}

void largest(Warp& warp, const Instruction& i, uint32_t lanes) {
  warp.require_members(members(warp, i.at[2], lanes), lanes);
  uint32_t most = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    most = (lanes >> lane & 1) != 0 ? std::max(most, warp.lanes<uint32_t>(i.at[1])[lane]) : most;
  }
  give_to_all(warp, i.at[0], lanes, most);
}

// Four matrices of 8 rows of 8 numbers of 16 bits: lane 8 m + r gives the address of row r of matrix m; lane l gets, in
// its register m, two neighbours of row l / 4, or with kTransposed of column l / 4.
template <bool kTransposed>
void load_matrices(Warp& warp, const Instruction& i, uint32_t lanes) {
  warp.require_members(kAllLanes, lanes);
  uint16_t rows[kLanes][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    std::memcpy(rows[lane],
                warp.shared(warp.base(i, 4, lane) + static_cast<uint64_t>(i.displacement[0]), sizeof rows[0], lane,
                            Warp::Access::read),
                sizeof rows[0]);
  }
  for (int m = 0; m < 4; ++m) {
    uint32_t* const to = warp.lanes<uint32_t>(i.at[static_cast<size_t>(m)]);
    const uint16_t(*const matrix)[8] = rows + 8 * m;
    for (int lane = 0; lane < kLanes; ++lane) {
      const int line = lane / 4, first = lane % 4 * 2;
      const uint32_t low = kTransposed ? matrix[first][line] : matrix[line][first];
      const uint32_t high = kTransposed ? matrix[first + 1][line] : matrix[line][first + 1];
      to[lane] = low | high << 16;
    }
  }
}

// The other way: lane l has two neighbours of row l / 4, or with kTransposed of column l / 4.
template <bool kTransposed>
void store_matrices(Warp& warp, const Instruction& i, uint32_t lanes) {
  warp.require_members(kAllLanes, lanes);
  uint16_t rows[kLanes][8];
  for (int m = 0; m < 4; ++m) {
    const uint32_t* const from = warp.lanes<uint32_t>(i.at[static_cast<size_t>(m) + 1]);
    uint16_t(*const matrix)[8] = rows + 8 * m;
    for (int lane = 0; lane < kLanes; ++lane) {
      const int line = lane / 4, first = lane % 4 * 2;
      (kTransposed ? matrix[first][line] : matrix[line][first]) = static_cast<uint16_t>(from[lane]);
      (kTransposed ? matrix[first + 1][line] : matrix[line][first + 1]) = static_cast<uint16_t>(from[lane] >> 16);
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    std::memcpy(warp.shared(warp.base(i, 0, lane) + static_cast<uint64_t>(i.displacement[0]), sizeof rows[0], lane,
                            Warp::Access::write),
                rows[lane], sizeof rows[0]);
  }
}

using Row [[gnu::vector_size(32)]] = float;  // of 8

// d [16, 8] = a [16, 16] b [16, 8] + c: lane l holds two neighbours of a row of a, of a column of b, of a row of c.
void multiply_matrices(Warp& warp, const Instruction& i, uint32_t lanes) {
  warp.require_members(kAllLanes, lanes);
  float a[16][16];
  Row b[16], sums[16];
  const auto words = [&](size_t operand) { return warp.lanes<uint32_t>(i.at[operand]); };
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int part = 0; part < 4; ++part) {  // rows 0-7 and 8-15 of the left half, then of the right one
      const uint32_t word = words(4 + static_cast<size_t>(part))[lane];
      float* const to = &a[group + part % 2 * 8][pair + part / 2 * 8];
      to[0] = from_bf16(word & 0xFFFF);
      to[1] = from_bf16(word >> 16);
    }
    for (int part = 0; part < 2; ++part) {
      const uint32_t word = words(8 + static_cast<size_t>(part))[lane];
      b[pair + part * 8][group] = from_bf16(word & 0xFFFF);
      b[pair + part * 8 + 1][group] = from_bf16(word >> 16);
    }
    for (int part = 0; part < 4; ++part) {
      sums[group + part / 2 * 8][pair + part % 2] = std::bit_cast<float>(words(10 + static_cast<size_t>(part))[lane]);
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      sums[row] += a[row][k] * b[k];
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int part = 0; part < 4; ++part) {
      words(static_cast<size_t>(part))[lane] =
          std::bit_cast<uint32_t>(sums[lane / 4 + part / 2 * 8][lane % 4 * 2 + part % 2]);
    }
  }
}

void read_timer(Warp& warp, const Instruction& i, uint32_t lanes) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) {
      warp.lanes<uint64_t>(i.at[0])[lane] =
          static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
    }
  }
}

}  // namespace

void add_warp_operations(Operations& all) {
  all["bra"] = all["bra.uni"] = {nullptr, "", Step::branch};  // the decoder knows where to
  all["ret"] = {nullptr, "", Step::exit};
  all["bar.sync"] = {nullptr, "w|w", Step::barrier};
  all["bar.warp.sync"] = {[](Warp& warp, const Instruction& i, uint32_t lanes) {
                            warp.require_members(members(warp, i.at[0], lanes), lanes);
                          },
                          "w"};
  all["shfl.sync.up.b32"] = {shuffle<Shuffle::up>, "wpwwww"};
  all["shfl.sync.bfly.b32"] = {shuffle<Shuffle::butterfly>, "wpwwww"};
  all["shfl.sync.idx.b32"] = {shuffle<Shuffle::index>, "wpwwww"};
  all["vote.sync.ballot.b32"] = {ballot, "wpw"};
  all["redux.sync.max.u32"] = {largest, "www"};
  all["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] = {load_matrices<false>, "wwwwm"};
  all["ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"] = {load_matrices<true>, "wwwwm"};
  all["stmatrix.sync.aligned.m8n8.x4.shared.b16"] = {store_matrices<false>, "mwwww"};
  all["stmatrix.sync.aligned.m8n8.x4.trans.shared.b16"] = {store_matrices<true>, "mwwww"};
  all["elect.sync"] = {elect, "pw"};
  all["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"] = {multiply_matrices, "wwwwwwwwwwwwww"};
  all["mov.u64.globaltimer"] = {read_timer, "l"};
}

}  // namespace emulated
