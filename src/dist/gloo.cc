#include "dist/gloo.h"

#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/hash_store.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "dist/gloo_exchange.h"
#include "dist/gloo_mesh.h"
#include "dist/gloo_sum.h"
#include "dist/work_queue.h"

namespace tandem::dist {
namespace {

enum class Kind : uint8_t { all_reduce, rounded_all_reduce, reduce_scatter, all_gather, broadcast, barrier };

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"all-reduce", "rounded all-reduce", "reduce-scatter",
                                    "all-gather", "broadcast",          "barrier"};
  return kNames[static_cast<int>(kind)];
}

// A 16-bit hash of the call, to detect ranks that make different calls.
uint64_t tag_of(Kind kind, const View& buffer, int root) {
  const std::string call = fmt::format("{} {} {} {}", name_of(kind), name_of(buffer.dtype), buffer.size(), root);
  Checksum sum;
  sum.add(call);
  return sum.value() >> 48;
}

bool share_memory(const View& a, const View& b) {
  const auto begin = [](const View& view) { return reinterpret_cast<uintptr_t>(view.data); };
  const auto end = [&](const View& view) { return begin(view) + view.size() * size_of(view.dtype); };
  return begin(a) < end(b) && begin(b) < end(a);
}

bool share_memory(const std::array<View, 2>& a, const std::array<View, 2>& b) {
  return std::any_of(a.begin(), a.end(), [&b](const View& one) {
    return std::any_of(b.begin(), b.end(), [&one](const View& other) { return share_memory(one, other); });
  });
}

constexpr ptrdiff_t kAhead = 2;  // calls that may begin before an earlier one is done

// Uses all ranks' connections: root sends about twice the buffer, however many ranks there are.
class GlooBroadcast final : public GlooCall {
 public:
  GlooBroadcast(const GlooPeers& peers, const View& buffer, int root, uint64_t slot, uint64_t second_slot)
      : peers_(peers), buffer_(buffer), root_(root), slot_(slot), second_(peers, buffer, second_slot, root) {}
  void finish(const std::function<void()>& meanwhile) override {
    scatter(peers_, buffer_, slot_, root_);
    second_.begin();
    second_.finish(meanwhile);
  }

 private:
  const GlooPeers peers_;
  const View buffer_;
  const int root_;
  const uint64_t slot_;
  GlooGather second_;
};

// A sum that is thrown away.
class GlooBarrier final : public GlooCall {
 public:
  GlooBarrier(const GlooPeers& peers, GlooStaging& staging, uint64_t slot, uint64_t second_slot)
      : sum_(peers, staging, host_view(&nothing_, 1, 1), host_view(&nothing_, 1, 1), slot, second_slot) {}
  void finish(const std::function<void()>& meanwhile) override {
    sum_.begin();
    sum_.finish(meanwhile);
  }

 private:
  int32_t nothing_ = 0;
  GlooSum sum_;
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(gloo::rendezvous::Store& store, int rank, int size, const std::string& address,
                   std::chrono::milliseconds timeout)
      : rank_(rank), size_(size) {
    queue_.add([&] { mesh_ = std::make_unique<GlooMesh>(store, rank, size, address, timeout); }).get();
  }

  ~GlooCommunicator() override {
    if (!queue_.idle()) {
      mesh_->abort(fmt::format("rank {} closed its communicator while work was under way", rank_));
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Handle start_all_reduce(const View& buffer) override {
    return start(Kind::all_reduce, buffer, 0, [&](uint64_t slot, uint64_t second) {
      return std::make_unique<GlooSum>(peers(), staging_, buffer, buffer, slot, second);
    });
  }

  Handle start_rounded_all_reduce(const View& sums, const View& values) override {
    require_communicable(sums, values);
    const auto make = [&](uint64_t slot, uint64_t second) {
      return std::make_unique<GlooSum>(peers(), staging_, sums, values, slot, second);
    };
    return start(Kind::rounded_all_reduce, values, 0, make, sums);
  }

  Handle start_reduce_scatter(const View& buffer) override {
    return start(Kind::reduce_scatter, buffer, 0, [&](uint64_t slot, uint64_t second) {
      return std::make_unique<GlooSum>(peers(), staging_, View{}, buffer, slot, second);
    });
  }

  Handle start_all_gather(const View& buffer) override {
    return start(Kind::all_gather, buffer, 0, [&](uint64_t slot, uint64_t /*second*/) {
      return std::make_unique<GlooGather>(peers(), buffer, slot);
    });
  }

  Handle start_broadcast(const View& buffer, int root) override {
    require(root >= 0 && root < size_, "broadcast from rank {} of {}", root, size_);
    return start(Kind::broadcast, buffer, root, [&](uint64_t slot, uint64_t second) {
      return std::make_unique<GlooBroadcast>(peers(), buffer, root, slot, second);
    });
  }

  Handle start_barrier() override {
    return start(Kind::barrier, make_view(nullptr, DType::i32, 0, 0), 0, [&](uint64_t slot, uint64_t second) {
      return std::make_unique<GlooBarrier>(peers(), staging_, slot, second);
    });
  }

  void abort(const std::string& reason) override {
    mesh_->abort(reason);
    queue_.add([this] { mesh_->run("abort", [] {}); });  // sends the reason to the peers
  }

  Traffic traffic() const override { return mesh_->traffic(); }
  double transfer_seconds() const override { return static_cast<double>(transfer_time_) * 1e-9; }

 private:
  struct Call {
    std::array<View, 2> memory;  // the memory that it works on
    std::unique_ptr<GlooCall> work;
    bool begun = false;
    void begin() {
      if (!std::exchange(begun, true)) {
        work->begin();
      }
    }
  };

  GlooPeers peers() const { return {*mesh_, rank_, size_}; }

  // make(slot, second slot) makes the call. also: more memory that it works on. A slot has 24 bits of call number, 16
  // of tag and 24 of piece index; call number 0 is the mesh's own.
  template <class Make>
  Handle start(Kind kind, const View& buffer, int root, const Make& make, const View& also = {}) {
    require_communicable(buffer);
    const uint64_t tag = tag_of(kind, buffer, root) << 24;
    const uint64_t number = 2 * (calls_++ % ((uint64_t{1} << 23) - 1)) + 1;
    auto call = std::make_shared<Call>(Call{{buffer, also}, make(number << 40 | tag, (number + 1) << 40 | tag)});
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(call));
    }
    std::string what = fmt::format("{} of {} {}", name_of(kind), buffer.size(), name_of(buffer.dtype));
    return Handle(queue_.add([this, kind, what = std::move(what)] {
      const auto begin = std::chrono::steady_clock::now();
      const auto first = take_first();  // destroyed at the end of this scope: then the buffer is the caller's again
      mesh_->run(what, [&] {
        first->begin();
        first->work->finish([&] { begin_after(*first); });
      });
      if (kind != Kind::broadcast && kind != Kind::barrier) {
        transfer_time_ += (std::chrono::steady_clock::now() - begin) / std::chrono::nanoseconds(1);
      }
    }));
  }

  std::shared_ptr<Call> take_first() {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Call> first = std::move(waiting_.front());
    waiting_.pop_front();
    return first;
  }

  // Begins the calls after `first` that work on other memory than all calls before them.
  void begin_after(const Call& first) {
    std::vector<std::shared_ptr<Call>> next;
    {
      const std::lock_guard lock(mutex_);
      next.assign(waiting_.begin(), waiting_.begin() + std::min<ptrdiff_t>(kAhead, std::ssize(waiting_)));
    }
    for (auto call = next.begin(); call != next.end(); ++call) {
      const auto shared = [&](const auto& earlier) { return share_memory(earlier->memory, (*call)->memory); };
      if (share_memory(first.memory, (*call)->memory) || std::any_of(next.begin(), call, shared)) {
        return;
      }
      (*call)->begin();
    }
  }

  const int rank_;
  const int size_;
  std::unique_ptr<GlooMesh> mesh_;  // used on the queue's thread, except for the functions that any thread may call
  GlooStaging staging_;             // used on the queue's thread
  uint64_t calls_ = 0;
  std::atomic<int64_t> transfer_time_ = 0;  // nanoseconds
  std::mutex mutex_;
  std::deque<std::shared_ptr<Call>> waiting_;  // unfinished calls but for the first, in the order of the calls
  WorkQueue queue_;                            // last, so that it ends first
};

}  // namespace

std::shared_ptr<gloo::rendezvous::Store> make_memory_store() { return std::make_shared<gloo::rendezvous::HashStore>(); }

std::shared_ptr<gloo::rendezvous::Store> make_file_store(const std::filesystem::path& empty_directory) {
  require(std::filesystem::is_directory(empty_directory),
          "{} is not a directory: create it, so that the ranks can meet there", empty_directory.string());
  return std::make_shared<gloo::rendezvous::FileStore>(empty_directory.string());
}

std::unique_ptr<Communicator> make_gloo_communicator(gloo::rendezvous::Store& store, int rank, int size,
                                                     const std::string& address, std::chrono::milliseconds timeout) {
  require(size >= 1 && rank >= 0 && rank < size, "rank {} of {} ranks", rank, size);
  require(timeout.count() > 0, "the timeout between ranks is {} ms, it must be positive", timeout.count());
  return std::make_unique<GlooCommunicator>(store, rank, size, address, timeout);
}

}  // namespace tandem::dist
