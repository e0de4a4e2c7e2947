// Work is done in the order in which it is given, whatever its stream: one of the orders that a GPU may choose.
#include "emulated_gpu/runtime/queue.h"

#include <chrono>
#include <memory>
#include <vector>

struct CUgraph_st {
  std::vector<std::function<void()>> work;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> work;
};
struct CUstream_st {
  CUgraph_st* graph = nullptr;  // that it is recorded into
};
struct CUevent_st {
  CUgraph_st* graph = nullptr;  // recorded there
  std::chrono::steady_clock::time_point time;
};

namespace emulated {

namespace {

thread_local CUgraph_st* recorded = nullptr;       // by this thread
thread_local std::vector<CUstream_st*> recording;  // its streams, the first one first

cudaError_t outside(cudaError_t status = cudaSuccess) {
  return is_recording() ? cudaErrorStreamCaptureUnsupported : status;
}

}  // namespace

void give(cudaStream_t stream, std::function<void()> work) {
  if (stream->graph != nullptr) {
    stream->graph->work.push_back(std::move(work));
  } else {
    work();
  }
}

bool is_recording() { return recorded != nullptr; }

}  // namespace emulated

using namespace emulated;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return outside(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->graph != nullptr && stream->graph == nullptr) {  // from here on it is recorded too
    stream->graph = event->graph;
    recording.push_back(stream);
  }
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  give(stream, [=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->graph = stream->graph;
  event->time = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return outside(); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (is_recording()) {
    return cudaErrorStreamCaptureUnsupported;
  }
  stream->graph = recorded = new CUgraph_st;
  recording = {stream};
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = std::exchange(recorded, nullptr);
  for (CUstream_st* stream : recording) {
    stream->graph = nullptr;
  }
  recording.clear();
  return *graph == nullptr ? cudaErrorIllegalState : cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const auto& work : executable->work) {
    give(stream, work);
  }
  return cudaSuccess;
}
}
