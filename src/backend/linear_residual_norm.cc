#include "backend/backend.h"

namespace tandem {

void Backend::linear_residual_norm(const LinearResidualNorm& end) {
  Epilogue epilogue;
  epilogue.bias = end.bias;
  linear(end.branch, end.x, end.w, epilogue);
  residual_norm(end.sum, end.normed, end.statistics, end.residual, end.branch, end.gamma, end.beta, end.dropout);
}

}  // namespace tandem
