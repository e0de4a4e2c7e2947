#include "dist/gloo_store.h"

#include "core/error.h"

namespace tandem::dist {

using std::chrono::steady_clock;

namespace {

constexpr std::chrono::seconds kSlack{5};  // the time for an answer to arrive

}  // namespace

GlooStore::GlooStore(RendezvousClient& client, std::string name, std::chrono::milliseconds timeout)
    : client_(client), name_(std::move(name)), timeout_(timeout) {}

void GlooStore::set(const std::string& key, const std::vector<char>& data) {
  client_.ask({"set", name_ + "/" + key, std::string(data.begin(), data.end())}, steady_clock::now() + timeout_);
}

std::vector<char> GlooStore::get(const std::string& key) {
  const std::string value = ask_for(key, steady_clock::now() + timeout_);
  return {value.begin(), value.end()};
}

void GlooStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void GlooStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const auto deadline = steady_clock::now() + timeout;
  for (const std::string& key : keys) {
    ask_for(key, deadline);
  }
}

std::string GlooStore::ask_for(const std::string& key, Deadline deadline) {
  const std::string left = std::to_string(milliseconds_until(deadline));
  const Message answer = client_.ask({"get", name_ + "/" + key, left}, deadline + kSlack);
  require(answer.front() == "value", "{} was not set in time", key);
  return field_of(answer, 1);
}

}  // namespace tandem::dist
