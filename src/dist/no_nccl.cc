#include "core/error.h"
#include "dist/device_communicator.h"

namespace tandem {

std::string why_no_nccl() { return "this tandem was built without CUDA"; }

std::unique_ptr<Communicator> make_nccl_communicator(Team&, DeviceStream) { fail("{}", why_no_nccl()); }

std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator>, Team&, DeviceStream) {
  fail("{}", why_no_nccl());
}

}  // namespace tandem
