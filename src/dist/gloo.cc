#include "dist/gloo.h"

#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/hash_store.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <utility>

#include "core/error.h"
#include "dist/gloo_exchange.h"
#include "dist/gloo_mesh.h"
#include "dist/work_queue.h"

namespace tandem {
namespace {

enum class Kind : uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, barrier };

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"all-reduce", "reduce-scatter", "all-gather", "broadcast", "barrier"};
  return kNames[static_cast<int>(kind)];
}

// Differs, most likely, between calls that differ; 16 bits of it are used.
uint64_t tag_of(Kind kind, const View& buffer, int root) {
  const std::string call = fmt::format("{} {} {} {}", name_of(kind), name_of(buffer.dtype), buffer.size(), root);
  uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char c : call) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  }
  return hash >> 48;
}

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(gloo::rendezvous::Store& store, int rank, int size, const std::string& address,
                   std::chrono::milliseconds timeout)
      : rank_(rank), size_(size) {
    const auto connect = [&] {
      mesh_ = std::make_unique<GlooMesh>(store, rank, size, address, timeout);
      exchange_ = std::make_unique<GlooExchange>(*mesh_, rank, size);
    };
    queue_.add(connect).get();
  }

  ~GlooCommunicator() override {
    if (!queue_.idle()) {
      mesh_->abort(fmt::format("rank {} closed its communicator while work was under way", rank_));
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Handle start_all_reduce(const View& buffer) override {
    return start(Kind::all_reduce, buffer, 0, [this, buffer](uint64_t tag) { exchange_->all_reduce(buffer, tag); });
  }

  Handle start_reduce_scatter(const View& buffer) override {
    return start(Kind::reduce_scatter, buffer, 0,
                 [this, buffer](uint64_t tag) { exchange_->reduce_scatter(buffer, tag); });
  }

  Handle start_all_gather(const View& buffer) override {
    return start(Kind::all_gather, buffer, 0, [this, buffer](uint64_t tag) { exchange_->all_gather(buffer, tag); });
  }

  // Through all ranks' connections: root sends about twice the buffer, however many ranks there are.
  Handle start_broadcast(const View& buffer, int root) override {
    require(root >= 0 && root < size_, "broadcast from rank {} of {}", root, size_);
    return start(Kind::broadcast, buffer, root, [this, buffer, root](uint64_t tag) {
      exchange_->scatter(buffer, tag, root);
      exchange_->all_gather(buffer, tag, root);
    });
  }

  Handle start_barrier() override {
    return start(Kind::barrier, make_view(nullptr, DType::i32, 0, 0), 0, [this](uint64_t tag) {
      int32_t one = 1;
      exchange_->reduce_scatter(host_view(&one, 1, 1), tag);
      exchange_->all_gather(host_view(&one, 1, 1), tag);
    });
  }

  void abort(const std::string& reason) override {
    mesh_->abort(reason);
    queue_.add([this] { mesh_->run("abort", [] {}); });  // tells the peers
  }

  Traffic traffic() const override { return mesh_->traffic(); }
  double transfer_seconds() const override { return static_cast<double>(transfer_time_) * 1e-9; }

 private:
  Handle start(Kind kind, const View& buffer, int root, std::function<void(uint64_t)> work) {
    require_communicable(buffer);
    const uint64_t tag = tag_of(kind, buffer, root);
    std::string what = fmt::format("{} of {} {}", name_of(kind), buffer.size(), name_of(buffer.dtype));
    return Handle(queue_.add([this, kind, tag, what = std::move(what), work = std::move(work)] {
      const auto begin = std::chrono::steady_clock::now();
      mesh_->run(what, [&] { work(tag); });
      if (kind != Kind::broadcast && kind != Kind::barrier) {
        transfer_time_ += (std::chrono::steady_clock::now() - begin) / std::chrono::nanoseconds(1);
      }
    }));
  }

  const int rank_;
  const int size_;
  std::unique_ptr<GlooMesh> mesh_;  // used on the queue's thread, but for what it says any thread may call
  std::unique_ptr<GlooExchange> exchange_;
  std::atomic<int64_t> transfer_time_ = 0;  // nanoseconds
  WorkQueue queue_;                         // last, so that it ends first
};

}  // namespace

std::shared_ptr<gloo::rendezvous::Store> make_memory_store() { return std::make_shared<gloo::rendezvous::HashStore>(); }

std::shared_ptr<gloo::rendezvous::Store> make_file_store(const std::filesystem::path& empty_directory) {
  require(std::filesystem::is_directory(empty_directory), "{} is no directory: make it for the ranks to meet in",
          empty_directory.string());
  return std::make_shared<gloo::rendezvous::FileStore>(empty_directory.string());
}

std::unique_ptr<Communicator> make_gloo_communicator(gloo::rendezvous::Store& store, int rank, int size,
                                                     const std::string& address, std::chrono::milliseconds timeout) {
  require(size >= 1 && rank >= 0 && rank < size, "rank {} of {} ranks", rank, size);
  require(timeout.count() > 0, "the timeout between ranks is {} ms, it must be positive", timeout.count());
  return std::make_unique<GlooCommunicator>(store, rank, size, address, timeout);
}

}  // namespace tandem
