// Gloo's store on top of the rendezvous: the ranks of one communicator exchange their addresses through it.
#pragma once

#include <gloo/rendezvous/store.h>

#include "dist/rendezvous_client.h"

namespace tandem::dist {

class GlooStore final : public gloo::rendezvous::Store {
 public:
  // Keys begin with `name`, which is unique in the process group. `timeout` is for waits that give none.
  GlooStore(RendezvousClient& client, std::string name, std::chrono::milliseconds timeout);

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  std::string ask_for(const std::string& key, Deadline deadline);

  RendezvousClient& client_;
  const std::string name_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace tandem::dist
