#include "dist/admission.h"

#include <climits>

#include "core/error.h"

namespace tandem::dist {
namespace {

std::string name_of(const RankInfo& member) { return describe(member.rank, member.host); }

std::string difference(const RankInfo& a, const RankInfo& b) {
  const auto compare = [&](const char* what, const std::string& of_a, const std::string& of_b, const char* advice) {
    return of_a == of_b ? ""
                        : fmt::format("{} has another {} ({}) than {} ({}): {}", name_of(a), what, printable(of_a, 60),
                                      name_of(b), printable(of_b, 60), advice);
  };
  std::string found = compare("version of the program", a.identity.version, b.identity.version,
                              "use the same binary on all hosts (tandem launch --push copies it)");
  if (found.empty()) {
    found = compare("config", a.identity.config, b.identity.config,
                    "use the same config and settings on all hosts (tandem launch --push copies the file)");
  }
  if (found.empty()) {
    found = compare("data", a.identity.data, b.identity.data,
                    "use the same prepared data on all hosts (tandem launch --push copies it)");
  }
  return found;
}

std::string step_of(const std::string& checkpoint) { return checkpoint.substr(0, checkpoint.find(' ')); }

std::string conflict(const RankInfo& a, const RankInfo& b) {
  const std::string& own = a.identity.checkpoint;
  const std::string& other = b.identity.checkpoint;
  if (!own.empty() && own != other && step_of(own) == step_of(other)) {
    return fmt::format(
        "{} has another checkpoint of step {} than {} ({} and {}): remove the run directory of one of them", name_of(a),
        printable(step_of(own), 20), name_of(b), printable(own, 60), printable(other, 60));
  }
  if (!a.identity.device.empty() && a.host == b.host && a.identity.device == b.identity.device) {
    return fmt::format("{} uses the same GPU as {} ({}): start at most as many workers on a host as it has GPUs",
                       name_of(a), name_of(b), printable(a.identity.device, 60));
  }
  return "";
}

}  // namespace

std::string describe(int rank, const std::string& host) {
  return host.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} on host {}", rank, host);
}

std::string reason_to_refuse(const JoiningRank& candidate, const std::vector<std::optional<RankInfo>>& present) {
  const RankInfo& member = candidate.member;
  if (candidate.size != static_cast<int>(present.size())) {
    return fmt::format("{} was given {} as the number of ranks, but rank 0 was given {}", name_of(member),
                       candidate.size, present.size());
  }
  for (const auto& other : present) {
    std::string found = other ? conflict(member, *other) : "";
    if (found.empty() && other && member.rank == 0) {
      found = difference(*other, member);
    } else if (found.empty() && other && other->rank == 0) {
      found = difference(member, *other);
    }
    if (!found.empty()) {
      return found;
    }
  }
  return "";
}

Message to_message(const JoiningRank& candidate) {
  const RankInfo& member = candidate.member;
  return {"join",
          std::to_string(candidate.size),
          std::to_string(member.node),
          member.host,
          member.address,
          member.interface,
          member.identity.version,
          member.identity.config,
          member.identity.data,
          member.identity.checkpoint,
          member.identity.device};
}

JoiningRank to_candidate(const Message& message, int rank) {
  require(message.size() == 11, "a join of {} fields, not 11", message.size());
  JoiningRank candidate;
  candidate.size = number_of(message[1], 1, INT_MAX);
  candidate.member = {.rank = rank,
                      .node = number_of(message[2], 0, INT_MAX),
                      .host = printable(message[3], 255),
                      .address = printable(message[4], 255),
                      .interface = printable(message[5], 64),
                      .identity = {.version = message[6],
                                   .config = message[7],
                                   .data = message[8],
                                   .checkpoint = message[9],
                                   .device = message[10]}};
  return candidate;
}

}  // namespace tandem::dist
