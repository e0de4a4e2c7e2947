#include "emulated_gpu/ptx/warp.h"

#include <algorithm>
#include <bit>

#include "emulated_gpu/error.h"

namespace emulated {

Warp::Warp(const LaunchedKernel& launch, Cluster& cluster, uint32_t rank, uint32_t number)
    : launch_(launch),
      cluster_(cluster),
      rank_(rank),
      number_(number),
      id_(rank * static_cast<uint32_t>(cluster.warps_of_block()) + number),
      registers_(launch.program.registers),
      local_(launch.program.local_bytes * kLanes, std::byte{0xFF}) {}

void Warp::start(Size3 block) {
  block_ = block;
  live_ = 0;
  copies_.clear();
  committed_ = {};
  stores_.clear();
  product_reads_.clear();
  committed_products_ = 0;
  cluster_arrivals_ = 0;
  polls_ = releases_ = false;
  has_awaited_ = !launch_.overlaps;
  const auto set = [&](Special special, int lane, uint32_t value) {
    lanes<uint32_t>(static_cast<uint32_t>(special) * kLanes * sizeof(uint32_t))[lane] = value;
  };
  const Size3 size = launch_.block, grid = launch_.grid;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t thread = number_ * kLanes + static_cast<uint32_t>(lane);
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
    set(Special::cluster_ctarank, lane, rank_);
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
        if (polls_) {
          polls_ = false;
          return State::polling;
        }
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
      case Step::cluster_barrier:
        require_all_live(lanes);
        ++part.pc;
        return State::at_cluster_barrier;
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
  for (const Store& store : stores_) {
    if ((lanes >> store.lane & 1) != 0) {
      fail_at(store.lane, "the thread ends before the copy engine has read what it is to store");
    }
  }
  live_ &= ~lanes;
  for (Part& part : parts_) {
    part.lanes &= ~lanes;
  }
}

void Warp::require_all_live(uint32_t lanes) const {
  if (lanes != live_) {
    fail_at(std::countr_zero(lanes ^ live_), "not all lanes of the warp come to the barrier");
  }
}

void Warp::meet_barrier(const Instruction& instruction, uint32_t lanes) {
  require_all_live(lanes);
  const int first = std::countr_zero(lanes);
  barrier_ = this->lanes<uint32_t>(instruction.at[0])[first];
  threads_ = instruction.operands > 1 ? this->lanes<uint32_t>(instruction.at[1])[first] : 0;
}

void Warp::arrive_at_cluster(uint32_t lanes, bool releases) {
  require_all_live(lanes);
  ++cluster_arrivals_;
  releases_ = releases;
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

size_t Warp::place_in_cluster(uint64_t address, size_t bytes, size_t alignment, int lane) {
  const uint64_t block = address >> kRankShift, inside = address & ((uint64_t{1} << kRankShift) - 1);
  if (block > cluster_.blocks()) {
    fail_at(lane, fmt::format("the cluster has no block {}", block - 1));
  }
  const size_t rank = block == 0 ? rank_ : block - 1;
  if (cluster_.has_ended(rank)) {
    fail_at(lane, fmt::format("block {} of the cluster has ended", rank));
  }
  if (rank != rank_) {
    cluster_.visit(id_, rank);
  }
  if (inside % alignment != 0) {
    fail_access("misaligned", "shared", inside, bytes, lane);
  }
  if (inside < kDriversSharedMemory || inside + bytes > cluster_.shared_bytes()) {
    fail_access("out-of-bounds", "shared", inside, bytes, lane);
  }
  return cluster_.offset(rank, inside);
}

void Warp::check_engine_reads(size_t offset, size_t bytes, int lane) const {
  if (const int other = cluster_.races().unfenced(offset, bytes); other != RaceCheck::kNoWarp) {
    fail_at(lane, fmt::format("what warp {} has written is read without its fence.proxy.async", other));
  }
  if (const int other = cluster_.races().read(id_, offset, bytes); other != RaceCheck::kNoWarp) {
    fail_race(Access::read, offset, other, lane);
  }
}

void Warp::check_engine_writes(size_t offset, size_t bytes, int lane) const {
  const int other = cluster_.races().write(id_, offset, bytes, RaceCheck::By::engine);
  if (other != RaceCheck::kNoWarp) {
    fail_race(Access::write, offset, other, lane);
  }
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

void Warp::commit_stores(uint32_t lanes) {
  for (Store& store : stores_) {
    store.committed = store.committed || (lanes >> store.lane & 1) != 0;
  }
}

void Warp::await_stores(uint32_t lanes) {
  std::erase_if(stores_, [&](const Store& store) {
    const bool goes = store.committed && (lanes >> store.lane & 1) != 0;
    if (goes) {
      store.store();
    }
    return goes;
  });
}

void Warp::begin_product_reads(size_t offset, size_t bytes) {
  const auto same = [&](const ProductReads& r) {
    return r.group == committed_products_ && r.offset == offset && r.bytes == bytes;
  };
  if (std::ranges::none_of(product_reads_,
                           same)) {  // steps along the inner dimension read other columns of the same rows
    product_reads_.push_back({committed_products_, offset, bytes});
  }
}

void Warp::await_products(uint64_t groups_left) {
  std::erase_if(product_reads_, [&](const ProductReads& reads) {
    const bool done = reads.group + groups_left < committed_products_;
    if (done) {
      check_engine_reads(reads.offset, reads.bytes, 0);
    }
    return done;
  });
}

}  // namespace emulated
