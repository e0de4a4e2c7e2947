#include <algorithm>
#include <limits>

#include "emulated_gpu/ptx/operations.h"

namespace emulated {

namespace {

using std::string;

// Without overflow, as the GPU: modulo 2^n.
template <class T>
void add_arithmetic(Operations& all, const string& type) {
  using U = std::make_unsigned_t<T>;
  add_map<U, U, U>(all, "add." + type, [](U a, U b) { return static_cast<U>(a + b); });
  add_map<U, U, U>(all, "sub." + type, [](U a, U b) { return static_cast<U>(a - b); });
  add_map<U, U, U>(all, "mul.lo." + type, [](U a, U b) { return static_cast<U>(a * b); });
  add_map<U, U, U, U>(all, "mad.lo." + type, [](U a, U b, U c) { return static_cast<U>(a * b + c); });
  add_map<U, U>(all, "neg." + type, [](U a) { return static_cast<U>(0 - a); });
  add_map<T, T, T>(all, "min." + type, [](T a, T b) { return std::min(a, b); });
  add_map<T, T, T>(all, "max." + type, [](T a, T b) { return std::max(a, b); });
  // All bits where the GPU's result is not defined; lanes that take no part may divide by anything.
  add_map<T, T, T>(all, "div." + type, [](T a, T b) {
    return b == 0 || (b == static_cast<T>(-1) && a == std::numeric_limits<T>::min()) ? static_cast<T>(-1)
                                                                                     : static_cast<T>(a / b);
  });
  add_map<T, T, T>(all, "rem." + type, [](T a, T b) {
    return b == 0 || (b == static_cast<T>(-1) && a == std::numeric_limits<T>::min()) ? static_cast<T>(-1)
                                                                                     : static_cast<T>(a % b);
  });
}

template <class To, class From>
void add_wide(Operations& all, const string& type) {
  add_map<To, From, From>(all, "mul.wide." + type, [](From a, From b) { return static_cast<To>(To{a} * To{b}); });
}

template <class T>
void add_bits(Operations& all, const string& type) {
  add_map<T, T, T>(all, "and." + type, [](T a, T b) { return static_cast<T>(a & b); });
  add_map<T, T, T>(all, "or." + type, [](T a, T b) { return static_cast<T>(a | b); });
  add_map<T, T, T>(all, "xor." + type, [](T a, T b) { return static_cast<T>(a ^ b); });
  add_map<T, T>(all, "not." + type, [](T a) { return static_cast<T>(~a); });
}

// Shifts by the width or more leave nothing, or the sign.
template <class T>
void add_left_shift(Operations& all, const string& type) {
  add_map<T, T, uint32_t>(all, "shl." + type,
                          [](T a, uint32_t n) { return n >= sizeof(T) * 8 ? T{0} : static_cast<T>(a << n); });
}
template <class T>
void add_right_shift(Operations& all, const string& type) {
  add_map<T, T, uint32_t>(all, "shr." + type, [](T a, uint32_t n) {
    constexpr uint32_t kBits = sizeof(T) * 8;
    return static_cast<T>(n < kBits ? a >> n : std::is_signed_v<T> ? a >> (kBits - 1) : T{0});
  });
}

// The lower `count` bits of a, at `first` of b.
template <class T>
void add_insertion(Operations& all, const string& type) {
  add_map<T, T, T, uint32_t, uint32_t>(all, "bfi." + type, [](T a, T b, uint32_t first, uint32_t count) {
    first &= 255;
    count &= 255;
    const T ones = count >= sizeof(T) * 8 ? ~T{0} : static_cast<T>((T{1} << count) - 1);
    const T mask = first >= sizeof(T) * 8 ? T{0} : static_cast<T>(ones << first);
    return static_cast<T>((b & ~mask) | (first >= sizeof(T) * 8 ? T{0} : a << first & mask));
  });
}

template <class T>
void add_comparisons(Operations& all, const string& type) {
  add_comparison<T>(all, "setp.eq." + type, [](T a, T b) { return a == b; });
  add_comparison<T>(all, "setp.ne." + type, [](T a, T b) { return a != b; });
  add_comparison<T>(all, "setp.lt." + type, [](T a, T b) { return a < b; });
  add_comparison<T>(all, "setp.le." + type, [](T a, T b) { return a <= b; });
  add_comparison<T>(all, "setp.gt." + type, [](T a, T b) { return a > b; });
  add_comparison<T>(all, "setp.ge." + type, [](T a, T b) { return a >= b; });
}

// All 32 lanes are the bits of one word.
template <class F>
void add_predicate_operation(Operations& all, const string& name, const string& operands, F /*function*/) {
  const Handler run = [](Warp& warp, const Instruction& i, uint32_t lanes) {
    const uint32_t a = *warp.lanes<uint32_t>(i.at[1]), b = i.operands > 2 ? *warp.lanes<uint32_t>(i.at[2]) : 0;
    set_predicate(warp, i.at[0], lanes, F{}(a, b));
  };
  all[name] = {run, operands};
}

// {low, high} = whole
template <class Whole, class Half>
void unpack(Warp& warp, const Instruction& i, uint32_t lanes) {
  Slot<Half>* const low = warp.lanes<Slot<Half>>(i.at[0]);
  Slot<Half>* const high = warp.lanes<Slot<Half>>(i.at[1]);
  const Slot<Whole>* const whole = warp.lanes<Slot<Whole>>(i.at[2]);
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) {
      const auto value = static_cast<Whole>(whole[lane]);
      low[lane] = static_cast<Half>(value);
      high[lane] = static_cast<Half>(value >> (sizeof(Half) * 8));
    }
  }
}

void add_moves(Operations& all) {
  for (const char* type : {"u32", "s32", "b32", "f32", "u16", "b16"}) {
    add_map<uint32_t, uint32_t>(all, string("mov.") + type, [](uint32_t a) { return a; });
  }
  for (const char* type : {"u64", "s64", "b64", "f64"}) {
    add_map<uint64_t, uint64_t>(all, string("mov.") + type, [](uint64_t a) { return a; });
  }
  add_predicate_operation(all, "mov.pred", "pp", [](uint32_t a, uint32_t) { return a; });
  // Names of the decoder's for moves from and to {low, high}.
  add_map<uint32_t, uint16_t, uint16_t>(
      all, "mov.b32.pack", [](uint16_t low, uint16_t high) { return low | static_cast<uint32_t>(high) << 16; });
  add_map<uint64_t, uint32_t, uint32_t>(
      all, "mov.b64.pack", [](uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; });
  all["mov.b32.unpack"] = {unpack<uint32_t, uint16_t>, "www"};
  all["mov.b64.unpack"] = {unpack<uint64_t, uint32_t>, "wwl"};
}

}  // namespace

void add_integer_operations(Operations& all) {
  add_pairs(all, "max.u16x2", [](uint32_t a, uint32_t b) { return std::max(a, b); });
  add_map<uint32_t, uint32_t, uint32_t, uint32_t>(all, "prmt.b32", [](uint32_t a, uint32_t b, uint32_t which) {
    const uint64_t bytes = uint64_t{b} << 32 | a;
    uint32_t result = 0;
    for (uint32_t i = 0; i < 32; i += 8, which >>= 4) {
      const auto byte = static_cast<uint8_t>(bytes >> (which & 7) * 8);
      const uint32_t sign = byte >> 7 != 0 ? 0xFF : 0;
      result |= ((which & 8) != 0 ? sign : byte) << i;
    }
    return result;
  });
  add_map<uint32_t, uint32_t, uint32_t, uint32_t>(all, "dp4a.s32.s32", [](uint32_t a, uint32_t b, uint32_t c) {
    for (uint32_t shift = 0; shift < 32; shift += 8) {
      c += static_cast<uint32_t>(static_cast<int8_t>(a >> shift) * static_cast<int8_t>(b >> shift));
    }
    return c;
  });
  add_arithmetic<int32_t>(all, "s32");
  add_arithmetic<uint32_t>(all, "u32");
  add_arithmetic<int64_t>(all, "s64");
  add_arithmetic<uint64_t>(all, "u64");
  add_wide<uint32_t, uint16_t>(all, "u16");
  add_wide<uint64_t, uint32_t>(all, "u32");
  add_wide<int64_t, int32_t>(all, "s32");
  add_bits<uint16_t>(all, "b16");
  add_bits<uint32_t>(all, "b32");
  add_bits<uint64_t>(all, "b64");
  add_left_shift<uint32_t>(all, "b32");
  add_left_shift<uint64_t>(all, "b64");
  add_right_shift<uint32_t>(all, "u32");
  add_right_shift<int32_t>(all, "s32");
  add_right_shift<uint64_t>(all, "u64");
  add_right_shift<int64_t>(all, "s64");
  add_insertion<uint32_t>(all, "b32");
  add_insertion<uint64_t>(all, "b64");
  add_map<uint32_t, uint32_t>(all, "popc.b32", [](uint32_t a) { return static_cast<uint32_t>(std::popcount(a)); });
  for (const char* kind : {"u", "b"}) {
    add_comparisons<uint16_t>(all, kind + string("16"));
    add_comparisons<uint32_t>(all, kind + string("32"));
    add_comparisons<uint64_t>(all, kind + string("64"));
  }
  add_comparisons<int16_t>(all, "s16");
  add_comparisons<int32_t>(all, "s32");
  add_comparisons<int64_t>(all, "s64");
  for (const char* type : {"b32", "u32", "s32", "f32", "u16", "b16"}) {
    add_selection<uint32_t>(all, string("selp.") + type);
  }
  for (const char* type : {"b64", "u64", "s64", "f64"}) {
    add_selection<uint64_t>(all, string("selp.") + type);
  }
  add_predicate_operation(all, "and.pred", "ppp", [](uint32_t a, uint32_t b) { return a & b; });
  add_predicate_operation(all, "or.pred", "ppp", [](uint32_t a, uint32_t b) { return a | b; });
  add_predicate_operation(all, "xor.pred", "ppp", [](uint32_t a, uint32_t b) { return a ^ b; });
  add_predicate_operation(all, "not.pred", "pp", [](uint32_t a, uint32_t) { return ~a; });
  add_moves(all);
}

}  // namespace emulated
