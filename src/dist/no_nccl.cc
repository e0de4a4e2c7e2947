#include "core/error.h"
#include "dist/process_group.h"

namespace tandem::dist {

std::string why_no_nccl() { return "this binary was built without NCCL"; }

std::unique_ptr<Communicator> make_nccl_communicator(ProcessGroup&, DeviceStream) { fail("{}", why_no_nccl()); }

}  // namespace tandem::dist
