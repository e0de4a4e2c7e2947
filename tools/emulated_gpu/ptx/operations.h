// The instructions that the emulated GPU knows, by their whole name: one with another modifier is another one.
#pragma once

#include <bit>
#include <string>
#include <unordered_map>

#include "emulated_gpu/ptx/warp.h"

namespace emulated {

// Operands, in the order of the text with vectors and pairs (a|b) taken apart, a letter each:
//   w  register of 4 bytes a lane     l  register of 8 bytes     r  either
//   p  predicate                      m  address                 n  number that is known beforehand
//   v  vector of any number of registers of 4 bytes, as a list of the program's; only as the first one
// Those behind a | may be missing.
struct Operation {
  Handler run = nullptr;
  std::string operands;
  Step step = Step::plain;
};

using Operations = std::unordered_map<std::string, Operation>;

void add_integer_operations(Operations& all);
void add_float_operations(Operations& all);
void add_conversions(Operations& all);
void add_memory_operations(Operations& all);
void add_warp_operations(Operations& all);
void add_barrier_operations(Operations& all);
void add_copy_engine_operations(Operations& all);
void add_group_products(Operations& all);

// What a lane of a register holds, and T in it: narrow numbers lie in the lower bits.
template <class T>
using Slot = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <size_t kBytes>
using Bits =
    std::conditional_t<kBytes == 8, uint64_t,
                       std::conditional_t<kBytes == 4, uint32_t, std::conditional_t<kBytes == 2, uint16_t, uint8_t>>>;

template <class T>
inline T number(Slot<T> slot) {
  return std::bit_cast<T>(static_cast<Bits<sizeof(T)>>(slot));
}
template <class T>
inline Slot<T> slot(T value) {
  return std::bit_cast<Bits<sizeof(T)>>(value);
}

template <class T>
constexpr char letter_of() {
  return sizeof(T) == 8 ? 'l' : 'w';
}

inline float from_bf16(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

// To the nearest, ties to even; NaN as the GPU's.
inline uint32_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return (bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FFF : rounded;
}

// One value a lane from those of the same lane. Lanes that take no part keep theirs.
template <class D, class F, class... Sources, size_t... kIndices>
void map_lanes(Warp& warp, const Instruction& i, uint32_t lanes, std::index_sequence<kIndices...>) {
  Slot<D>* const to = warp.lanes<Slot<D>>(i.at[0]);
  const auto from = std::tuple{static_cast<const Slot<Sources>*>(warp.lanes<Slot<Sources>>(i.at[kIndices + 1]))...};
  if (lanes == kAllLanes) {
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; ++lane) {
      to[lane] = slot<D>(F{}(number<Sources>(std::get<kIndices>(from)[lane])...));
    }
  } else {
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; ++lane) {
      const Slot<D> value = slot<D>(F{}(number<Sources>(std::get<kIndices>(from)[lane])...));
      to[lane] = (lanes >> lane & 1) != 0 ? value : to[lane];
    }
  }
}

// add_map<int32_t, int32_t, int32_t>(all, "add.s32", [](int32_t a, int32_t b) { ... })
template <class D, class... Sources, class F>
void add_map(Operations& all, const std::string& name, F /*function*/) {
  const Handler run = [](Warp& warp, const Instruction& i, uint32_t lanes) {
    map_lanes<D, F, Sources...>(warp, i, lanes, std::index_sequence_for<Sources...>());
  };
  all[name] = {run, std::string{letter_of<D>(), letter_of<Sources>()...}};
}

// The same for the lower and the upper 16 bits of a word.
template <class F>
void add_pairs(Operations& all, const std::string& name, F /*function*/) {
  add_map<uint32_t, uint32_t, uint32_t>(
      all, name, [](uint32_t a, uint32_t b) { return F{}(a & 0xFFFF, b & 0xFFFF) | F{}(a >> 16, b >> 16) << 16; });
}

inline void set_predicate(Warp& warp, uint32_t at, uint32_t lanes, uint32_t value) {
  uint32_t& predicate = *warp.lanes<uint32_t>(at);
  predicate = (predicate & ~lanes) | (value & lanes);
}

// A predicate from two values.
template <class T, class F>
void add_comparison(Operations& all, const std::string& name, F /*function*/) {
  const Handler run = [](Warp& warp, const Instruction& i, uint32_t lanes) {
    const Slot<T>* const a = warp.lanes<Slot<T>>(i.at[1]);
    const Slot<T>* const b = warp.lanes<Slot<T>>(i.at[2]);
    uint32_t result = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      result |= static_cast<uint32_t>(F{}(number<T>(a[lane]), number<T>(b[lane]))) << lane;
    }
    set_predicate(warp, i.at[0], lanes, result);
  };
  all[name] = {run, std::string{'p', letter_of<T>(), letter_of<T>()}};
}

// One of two values, by a predicate.
template <class T>
void add_selection(Operations& all, const std::string& name) {
  const Handler run = [](Warp& warp, const Instruction& i, uint32_t lanes) {
    Slot<T>* const to = warp.lanes<Slot<T>>(i.at[0]);
    const Slot<T>* const a = warp.lanes<Slot<T>>(i.at[1]);
    const Slot<T>* const b = warp.lanes<Slot<T>>(i.at[2]);
    const uint32_t chosen = *warp.lanes<uint32_t>(i.at[3]);
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; ++lane) {
      const Slot<T> value = (chosen >> lane & 1) != 0 ? a[lane] : b[lane];
      to[lane] = (lanes >> lane & 1) != 0 ? value : to[lane];
    }
  };
  all[name] = {run, std::string{letter_of<T>(), letter_of<T>(), letter_of<T>(), 'p'}};
}

}  // namespace emulated
