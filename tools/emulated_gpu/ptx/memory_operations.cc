#include "emulated_gpu/ptx/operations.h"

namespace emulated {

namespace {

using std::string;

enum class Space : uint8_t { global, shared, local, parameter };

template <Space kSpace, Warp::Access kAccess>
auto* place(Warp& warp, uint64_t address, size_t bytes, int lane) {
  if constexpr (kSpace == Space::global) {
    return warp.global(address, bytes, lane);
  } else if constexpr (kSpace == Space::shared) {
    return warp.shared(address, bytes, lane, kAccess);
  } else if constexpr (kSpace == Space::local) {
    return warp.local(address, bytes, lane);
  } else {
    return warp.parameter(address, bytes, lane);
  }
}

// A number of T goes to the whole register: with its sign where it has one.
template <Space kSpace, class T>
void load(Warp& warp, const Instruction& i, uint32_t lanes) {
  const int address = i.elements;  // behind the registers
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) {
      continue;
    }
    const std::byte* from = place<kSpace, Warp::Access::read>(
        warp, warp.base(i, address, lane) + static_cast<uint64_t>(i.displacement[0]), sizeof(T) * i.elements, lane);
    for (int e = 0; e < i.elements; ++e, from += sizeof(T)) {
      T value;
      std::memcpy(&value, from, sizeof(T));
      if ((i.wide >> e & 1) != 0) {
        warp.lanes<uint64_t>(i.at[e])[lane] = static_cast<uint64_t>(value);
      } else {
        warp.lanes<uint32_t>(i.at[e])[lane] = static_cast<uint32_t>(value);
      }
    }
  }
}

template <Space kSpace, class T>
void store(Warp& warp, const Instruction& i, uint32_t lanes) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) {
      continue;
    }
    std::byte* to = place<kSpace, Warp::Access::write>(
        warp, warp.base(i, 0, lane) + static_cast<uint64_t>(i.displacement[0]), sizeof(T) * i.elements, lane);
    for (int e = 1; e <= i.elements; ++e, to += sizeof(T)) {
      const auto value = static_cast<T>((i.wide >> e & 1) != 0 ? warp.lanes<uint64_t>(i.at[e])[lane]
                                                               : warp.lanes<uint32_t>(i.at[e])[lane]);
      std::memcpy(to, &value, sizeof(T));
    }
  }
}

template <Space kSpace, class T>
void add_accesses(Operations& all, const string& space, const string& type) {
  for (const int elements : {1, 2, 4}) {
    const string name = space + (elements == 1 ? "." : elements == 2 ? ".v2." : ".v4.") + type;
    const string registers(static_cast<size_t>(elements), 'r');
    all["ld" + name] = {load<kSpace, T>, registers + "m"};
    if constexpr (kSpace != Space::parameter) {
      all["st" + name] = {store<kSpace, T>, "m" + registers};
    }
  }
}

template <Space kSpace>
void add_space(Operations& all, const string& space) {
  add_accesses<kSpace, uint8_t>(all, space, "u8");
  add_accesses<kSpace, int8_t>(all, space, "s8");
  add_accesses<kSpace, int16_t>(all, space, "s16");
  add_accesses<kSpace, int32_t>(all, space, "s32");
  for (const char* kind : {"u", "b"}) {
    add_accesses<kSpace, uint16_t>(all, space, kind + string("16"));
    add_accesses<kSpace, uint32_t>(all, space, kind + string("32"));
    add_accesses<kSpace, uint64_t>(all, space, kind + string("64"));
  }
  add_accesses<kSpace, uint64_t>(all, space, "s64");
  add_accesses<kSpace, uint32_t>(all, space, "f32");
  add_accesses<kSpace, uint64_t>(all, space, "f64");
}

void add_to_shared(Warp& warp, const Instruction& i, uint32_t lanes) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) {
      std::byte* const at =
          warp.shared(warp.base(i, 1, lane) + static_cast<uint64_t>(i.displacement[0]), 4, lane, Warp::Access::atomic);
      uint32_t value = 0;
      std::memcpy(&value, at, sizeof value);
      const uint32_t sum = value + warp.lanes<uint32_t>(i.at[2])[lane];
      std::memcpy(at, &sum, sizeof sum);
      warp.lanes<uint32_t>(i.at[0])[lane] = value;
    }
  }
}

// cp.async.cg.shared.global [to], [from], size[, bytes that are copied]
void copy_later(Warp& warp, const Instruction& i, uint32_t lanes) {
  const size_t size = i.at[2];
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) {
      const size_t bytes = i.operands > 3 ? std::min<size_t>(size, warp.lanes<uint32_t>(i.at[3])[lane]) : size;
      warp.begin_copy({.lane = lane,
                       .group = 0,
                       .to = warp.base(i, 0, lane) + static_cast<uint64_t>(i.displacement[0]),
                       .from = warp.base(i, 1, lane) + static_cast<uint64_t>(i.displacement[1]),
                       .bytes = bytes,
                       .size = size});
    }
  }
}

}  // namespace

void add_memory_operations(Operations& all) {
  add_space<Space::global>(all, ".global");
  add_space<Space::global>(all, "");  // generic addresses: those of shared memory are not read
  add_space<Space::shared>(all, ".shared");
  add_space<Space::local>(all, ".local");
  add_space<Space::parameter>(all, ".param");
  add_map<uint64_t, uint64_t>(all, "cvta.to.global.u64", [](uint64_t a) { return a; });
  add_map<uint64_t, uint64_t>(all, "cvta.param.u64", [](uint64_t a) { return a; });  // for the copy engine's maps alone
  // Compared, never read: outside of all memory.
  add_map<uint64_t, uint64_t>(all, "cvta.shared.u64", [](uint64_t a) { return a | uint64_t{1} << 63; });
  all["prefetch.global.L2"] = {[](Warp&, const Instruction&, uint32_t) {}, "m"};
  all["atom.shared.add.u32"] = {add_to_shared, "wmw"};
  all["cp.async.cg.shared.global"] = {copy_later, "mmn|w"};
  all["cp.async.commit_group"] = {[](Warp& warp, const Instruction&, uint32_t lanes) { warp.commit_copies(lanes); },
                                  ""};
  all["cp.async.wait_group"] = {
      [](Warp& warp, const Instruction& i, uint32_t lanes) { warp.await_copies(lanes, i.at[0]); }, "n"};
}

}  // namespace emulated
