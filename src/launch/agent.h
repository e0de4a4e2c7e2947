// Runs on each host on behalf of the launcher: starts that host's workers, relays their output, and ends them when the
// launcher is gone.
//
// It communicates over its standard streams, which ssh carries, with the messages of dist/message.h after one line of
// greeting (so that text printed by a login shell before it does no harm). From the launcher:
//   {"grace", milliseconds}                            for workers to save and end once the launcher is gone
//   {"listen", "local" or "any"}                       answered by {"listening", port, address, ...}
//   {"start", rank, directory, "listener" or "", number of arguments, argument, ..., NAME=VALUE, ...}
//   {"signal", number}                                 for all workers
//   {"end", milliseconds}                              workers that live after that time are killed
//   {"beat"}                                           once a second
// To the launcher:
//   {"out" or "err", rank, line}   {"exited", rank, wait status, "ordered" or ""}   {"failed", reason}   {"beat"}
// A worker leads a process group. The system kills it if the agent dies; if the launcher closes the stream or sends
// nothing for six seconds, it gets SIGTERM and, after the grace, SIGKILL. The agent itself survives SIGTERM, SIGINT and
// SIGHUP.
#pragma once

namespace tandem::launch {

inline constexpr const char* kAgentGreeting = "tandem agent 2\n";

// Returns when the launcher has closed the stream and all workers have ended. The caller keeps the descriptors.
void run_agent(int in, int out);

}  // namespace tandem::launch
