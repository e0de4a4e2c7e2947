// The secret that the ranks of a run share, where a user or this machine keeps it.
#pragma once

#include <string>

namespace tandem::dist {

// TANDEM_SECRET, or else the content of the file that TANDEM_SECRET_FILE names; empty if neither is set. One of fewer
// than 22 characters, which is too easily guessed, and a file that others may read are Errors.
std::string given_secret();

// A secret for ranks that are all on this machine and of one user: a random key of that user, kept in a private
// directory below the one for temporary files and made by the first who asks, mixed with the job's name.
std::string secret_on_this_host(const std::string& job);

}  // namespace tandem::dist
