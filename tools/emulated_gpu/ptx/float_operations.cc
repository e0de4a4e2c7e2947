#include <cmath>
#include <limits>

#include "emulated_gpu/ptx/operations.h"

namespace emulated {

namespace {

using std::string;

float without_subnormals(float value) {
  return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0F, value) : value;
}

// The other one, where one is NaN.
template <class T>
T larger(T a, T b) {
  return a != a ? b : b != b ? a : a > b || (a == b && !std::signbit(a)) ? a : b;
}

uint32_t larger_bf16(uint32_t a, uint32_t b) {
  const float value = larger(from_bf16(a), from_bf16(b));
  return value != value ? 0x7FFF : std::bit_cast<uint32_t>(value) >> 16;
}

constexpr uint32_t kNanBf16 = 0x7FFF, kSignBf16 = 0x8000;
bool is_nan_bf16(uint32_t bits) { return std::isnan(from_bf16(bits)); }

template <class T>
void add_arithmetic(Operations& all, const string& type) {
  for (const char* rounding : {"", "rn."}) {
    add_map<T, T, T>(all, string("add.") + rounding + type, [](T a, T b) { return a + b; });
    add_map<T, T, T>(all, string("sub.") + rounding + type, [](T a, T b) { return a - b; });
    add_map<T, T, T>(all, string("mul.") + rounding + type, [](T a, T b) { return a * b; });
  }
  add_map<T, T, T, T>(all, "fma.rn." + type, [](T a, T b, T c) { return std::fma(a, b, c); });
  add_map<T, T, T>(all, "div.rn." + type, [](T a, T b) { return a / b; });
  add_map<T, T>(all, "rcp.rn." + type, [](T a) { return 1 / a; });
  add_map<T, T>(all, "sqrt.rn." + type, [](T a) { return std::sqrt(a); });
  add_map<T, T>(all, "neg." + type, [](T a) { return -a; });
  add_map<T, T>(all, "abs." + type, [](T a) { return std::fabs(a); });
  add_map<T, T, T>(all, "max." + type, [](T a, T b) { return larger(a, b); });
  add_map<T, T, T>(all, "min." + type, [](T a, T b) { return -larger(-a, -b); });
  add_map<T, T, T>(all, "copysign." + type, [](T sign, T value) { return std::copysign(value, sign); });
}

// The names with u are true where one is NaN.
template <class T>
void add_comparisons(Operations& all, const string& type) {
  add_comparison<T>(all, "setp.eq." + type, [](T a, T b) { return a == b; });
  add_comparison<T>(all, "setp.ne." + type, [](T a, T b) { return a < b || a > b; });
  add_comparison<T>(all, "setp.lt." + type, [](T a, T b) { return a < b; });
  add_comparison<T>(all, "setp.le." + type, [](T a, T b) { return a <= b; });
  add_comparison<T>(all, "setp.gt." + type, [](T a, T b) { return a > b; });
  add_comparison<T>(all, "setp.ge." + type, [](T a, T b) { return a >= b; });
  add_comparison<T>(all, "setp.equ." + type, [](T a, T b) { return !(a < b || a > b); });
  add_comparison<T>(all, "setp.neu." + type, [](T a, T b) { return !(a == b); });
  add_comparison<T>(all, "setp.ltu." + type, [](T a, T b) { return !(a >= b); });
  add_comparison<T>(all, "setp.leu." + type, [](T a, T b) { return !(a > b); });
  add_comparison<T>(all, "setp.gtu." + type, [](T a, T b) { return !(a <= b); });
  add_comparison<T>(all, "setp.geu." + type, [](T a, T b) { return !(a < b); });
  add_comparison<T>(all, "setp.nan." + type, [](T a, T b) { return a != a || b != b; });
  add_comparison<T>(all, "setp.num." + type, [](T a, T b) { return a == a && b == b; });
}

}  // namespace

void add_float_operations(Operations& all) {
  add_arithmetic<float>(all, "f32");
  add_arithmetic<double>(all, "f64");
  add_comparisons<float>(all, "f32");
  add_comparisons<double>(all, "f64");
  add_map<float, float, float>(all, "set.ge.f32.f32", [](float a, float b) { return a >= b ? 1.0F : 0.0F; });
  // What the GPU computes to some bits only is exact here.
  add_map<float, float>(all, "ex2.approx.f32", [](float a) { return std::exp2(a); });
  add_map<float, float>(all, "ex2.approx.ftz.f32",
                        [](float a) { return without_subnormals(std::exp2(without_subnormals(a))); });
  add_map<float, float>(all, "lg2.approx.ftz.f32", [](float a) { return std::log2(without_subnormals(a)); });
  add_map<float, float>(all, "rcp.approx.ftz.f32",
                        [](float a) { return without_subnormals(1 / without_subnormals(a)); });
  add_map<float, float>(all, "rsqrt.approx.f32", [](float a) { return 1 / std::sqrt(a); });
  add_map<double, double>(all, "rcp.approx.ftz.f64", [](double a) {  // of 20 bits
    return std::bit_cast<double>(std::bit_cast<uint64_t>(1 / a) & 0xFFFFFFFF00000000);
  });
  add_pairs(all, "max.NaN.bf16x2",
            [](uint32_t a, uint32_t b) { return is_nan_bf16(a) || is_nan_bf16(b) ? kNanBf16 : larger_bf16(a, b); });
  add_pairs(all, "min.NaN.bf16x2", [](uint32_t a, uint32_t b) {
    return is_nan_bf16(a) || is_nan_bf16(b) ? kNanBf16 : larger_bf16(a ^ kSignBf16, b ^ kSignBf16) ^ kSignBf16;
  });
  add_pairs(all, "set.neu.u32.bf16x2",
            [](uint32_t a, uint32_t b) -> uint32_t { return from_bf16(a) == from_bf16(b) ? 0 : 0xFFFF; });
  add_comparison<uint16_t>(all, "setp.ge.bf16", [](uint16_t a, uint16_t b) { return from_bf16(a) >= from_bf16(b); });
  add_pairs(all, "max.bf16x2", [](uint32_t a, uint32_t b) { return larger_bf16(a, b); });
}

void add_conversions(Operations& all) {
  add_map<uint16_t, float>(all, "cvt.rn.bf16.f32", [](float a) { return static_cast<uint16_t>(to_bf16(a)); });
  add_map<uint16_t, float>(all, "cvt.rm.bf16.f32", [](float a) {  // down: negative ones away from 0
    const auto bits = std::bit_cast<uint32_t>(a);
    const uint32_t up = std::signbit(a) && !std::isinf(a) ? 0xFFFF : 0;
    return static_cast<uint16_t>(std::isnan(a) ? kNanBf16 : (bits + up) >> 16);
  });
  add_map<uint32_t, float, float>(all, "cvt.rn.bf16x2.f32",
                                  [](float high, float low) { return to_bf16(low) | to_bf16(high) << 16; });
  add_map<uint32_t, float, float>(all, "cvt.rn.relu.bf16x2.f32", [](float high, float low) {
    const auto at_least_0 = [](float a) { return a <= 0 ? 0.0F : a; };  // NaN stays
    return to_bf16(at_least_0(low)) | to_bf16(at_least_0(high)) << 16;
  });
  add_map<float, uint16_t>(all, "cvt.f32.bf16", [](uint16_t a) { return from_bf16(a); });
  add_map<double, float>(all, "cvt.f64.f32", [](float a) { return static_cast<double>(a); });
  add_map<float, double>(all, "cvt.rn.f32.f64", [](double a) { return static_cast<float>(a); });
  add_map<float, int32_t>(all, "cvt.rn.f32.s32", [](int32_t a) { return static_cast<float>(a); });
  add_map<double, uint32_t>(all, "cvt.rn.f64.u32", [](uint32_t a) { return static_cast<double>(a); });
  add_map<double, int64_t>(all, "cvt.rn.f64.s64", [](int64_t a) { return static_cast<double>(a); });
  add_map<double, double>(all, "cvt.rzi.f64.f64", [](double a) { return std::trunc(a); });
  add_map<int64_t, int32_t>(all, "cvt.s64.s32", [](int32_t a) { return static_cast<int64_t>(a); });
  add_map<uint64_t, uint32_t>(all, "cvt.u64.u32", [](uint32_t a) { return static_cast<uint64_t>(a); });
  add_map<uint32_t, uint64_t>(all, "cvt.u32.u64", [](uint64_t a) { return static_cast<uint32_t>(a); });
  add_map<uint32_t, uint16_t>(all, "cvt.u32.u16", [](uint16_t a) { return static_cast<uint32_t>(a); });
}

}  // namespace emulated
