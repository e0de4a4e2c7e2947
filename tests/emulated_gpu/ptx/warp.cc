#include "emulated_gpu/ptx/warp.h"

#include <algorithm>
#include <bit>

#include "core/error.h"

namespace tandem::emulated {

Warp::Warp(const LaunchedKernel& launch, std::vector<std::byte>& shared, RaceCheck& races)
    : launch_(launch),
      shared_(shared),
      races_(races),
      registers_(launch.program.registers),
      local_(launch.program.local_bytes * kLanes, std::byte{0xFF}) {}

void Warp::start(Size3 block, uint32_t number) {
  block_ = block;
  number_ = number;
  live_ = 0;
  copies_.clear();
  committed_ = {};
  const auto set = [&](Special special, int lane, uint32_t value) {
    lanes<uint32_t>(static_cast<uint32_t>(special) * kLanes * sizeof(uint32_t))[lane] = value;
  };
  const Size3 size = launch_.block, grid = launch_.grid;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t thread = number * kLanes + static_cast<uint32_t>(lane);
    live_ |= thread < size.count() ? uint32_t{1} << lane : 0;
    set(Special::tid_x, lane, thread % size.x);
    set(Special::tid_y, lane, thread / size.x % size.y);
    set(Special::tid_z, lane, thread / size.x / size.y);
    set(Special::ntid_x, lane, size.x);
    set(Special::ntid_y, lane, size.y);
    set(Special::ntid_z, lane, size.z);
    set(Special::ctaid_x, lane, block.x);
    set(Special::ctaid_y, lane, block.y);
    set(Special::ctaid_z, lane, block.z);
    set(Special::nctaid_x, lane, grid.x);
    set(Special::nctaid_y, lane, grid.y);
    set(Special::nctaid_z, lane, grid.z);
    set(Special::laneid, lane, static_cast<uint32_t>(lane));
  }
  parts_.assign(1, {0, static_cast<uint32_t>(launch_.program.code.size()), live_});
}

Warp::State Warp::run() {
  const Instruction* const code = launch_.program.code.data();
  while (!parts_.empty()) {
    Part& part = parts_.back();
    if (part.lanes == 0 || part.pc == part.join) {
      parts_.pop_back();
      continue;
    }
    now_ = part.pc;
    const Instruction& instruction = code[part.pc];
    uint32_t lanes = part.lanes;
    if (instruction.guard != kNone) {
      const uint32_t guard = *this->lanes<uint32_t>(instruction.guard);
      lanes &= instruction.negated ? ~guard : guard;
    }
    switch (instruction.step) {
      case Step::plain:
        if (lanes != 0) {
          instruction.run(*this, instruction, lanes);
        }
        ++part.pc;
        break;
      case Step::branch:
        branch(instruction, lanes);
        break;
      case Step::exit:
        ++part.pc;
        exit(lanes);
        break;
      case Step::barrier:
        meet_barrier(instruction, lanes);
        ++part.pc;
        return State::at_barrier;
    }
  }
  return State::ended;
}

void Warp::branch(const Instruction& instruction, uint32_t taken) {
  Part& part = parts_.back();
  const uint32_t next = part.pc + 1, passed = part.lanes & ~taken;
  if (passed == 0) {
    part.pc = instruction.target;
  } else if (taken == 0) {
    part.pc = next;
  } else {
    part.pc = instruction.join;
    for (const Part way : {Part{next, instruction.join, passed}, Part{instruction.target, instruction.join, taken}}) {
      if (way.pc != way.join) {
        parts_.push_back(way);
      }
    }
  }
}

void Warp::exit(uint32_t lanes) {
  live_ &= ~lanes;
  for (Part& part : parts_) {
    part.lanes &= ~lanes;
  }
}

void Warp::meet_barrier(const Instruction& instruction, uint32_t lanes) {
  if (lanes != live_) {
    fail_at(std::countr_zero(lanes ^ live_), "not all lanes of the warp come to the barrier");
  }
  barrier_ = instruction.at[0];
  threads_ = instruction.operands > 1 ? instruction.at[1] : 0;
}

void Warp::require_members(uint32_t named, uint32_t taking_part) {
  if (named != taking_part) {
    fail_at(std::countr_zero(named ^ taking_part),
            fmt::format("lanes {:08x} take part, but {:08x} are named", taking_part, named));
  }
}

void Warp::find_range(uint64_t address, size_t bytes, int lane) {
  known_ = DeviceMemory::instance().find(address, bytes);
  if (known_.begin == known_.end) {
    fail_access("out-of-bounds", "global", address, bytes, lane);
  }
}

void Warp::fail_access(const char* how, const char* space, uint64_t address, size_t bytes, int lane) const {
  fail_at(lane, fmt::format("{} access to {} bytes of {} memory at {:#x}", how, bytes, space, address));
}

void Warp::fail_race(Access access, uint64_t address, int other, int lane) const {
  fail_at(lane, fmt::format("a {} of shared memory at {:#x} that no barrier parts from an access of warp {}",
                            access == Access::read ? "read" : "write", address, other));
}

void Warp::fail_at(int lane, const std::string& what) const {
  const Program& program = launch_.program;
  const int line = program.code[now_].line;
  const uint32_t thread = number_ * kLanes + static_cast<uint32_t>(lane);
  fail("{} in thread {} of block ({}, {}, {}), at line {} of the PTX, \"{}\", of kernel {}", what, thread, block_.x,
       block_.y, block_.z, line, program.module->line(line), program.name);
}

void Warp::begin_copy(Copy copy) {
  copy.group = committed_[static_cast<size_t>(copy.lane)];
  shared(copy.to, copy.size, copy.lane, Access::write);  // it may arrive at once
  copied_from(copy);
  copies_.push_back(copy);
}

// Only the bytes that are copied have to be there.
const std::byte* Warp::copied_from(const Copy& copy) {
  if ((copy.from & (copy.size - 1)) != 0) {
    fail_access("misaligned", "global", copy.from, copy.size, copy.lane);
  }
  if (copy.bytes > 0 && (copy.from < known_.begin || copy.from + copy.bytes > known_.end)) {
    find_range(copy.from, copy.bytes, copy.lane);
  }
  return reinterpret_cast<const std::byte*>(copy.from);  // NOLINT: an address of the host
}

void Warp::commit_copies(uint32_t lanes) {
  for (int lane = 0; lane < kLanes; ++lane) {
    committed_[static_cast<size_t>(lane)] += lanes >> lane & 1;
  }
}

void Warp::await_copies(uint32_t lanes, uint64_t groups_left) {
  std::erase_if(copies_, [&](const Copy& copy) {
    const bool arrives =
        (lanes >> copy.lane & 1) != 0 && copy.group + groups_left < committed_[static_cast<size_t>(copy.lane)];
    if (arrives) {
      std::byte* const to = shared(copy.to, copy.size, copy.lane, Access::write);
      std::memset(to + copy.bytes, 0, copy.size - copy.bytes);
      if (copy.bytes > 0) {
        std::memcpy(to, copied_from(copy), copy.bytes);
      }
    }
    return arrives;
  });
}

}  // namespace tandem::emulated
