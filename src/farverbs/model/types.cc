#include "farverbs/model/types.h"

namespace farverbs::model {

const char* to_string(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::kWrite:
      return "WRITE";
    case SendOpcode::kWriteWithImmediate:
      return "WRITE with immediate";
    case SendOpcode::kSend:
      return "SEND";
    case SendOpcode::kSendWithImmediate:
      return "SEND with immediate";
    case SendOpcode::kRead:
      return "READ";
    case SendOpcode::kCompareSwap:
      return "CMP_SWP";
    case SendOpcode::kFetchAdd:
      return "FETCH_ADD";
    case SendOpcode::kLocalInvalidate:
      return "local invalidate";
    case SendOpcode::kBindWindow:
      return "bind window";
    case SendOpcode::kSendWithInvalidate:
      return "SEND with invalidate";
  }
  return "unknown opcode";
}

const char* to_string(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::kSuccess:
      return "success";
    case CompletionStatus::kLocalLengthError:
      return "local length error";
    case CompletionStatus::kLocalQpOperationError:
      return "local QP operation error";
    case CompletionStatus::kLocalProtectionError:
      return "local protection error";
    case CompletionStatus::kWorkRequestFlushed:
      return "work request flushed";
    case CompletionStatus::kWindowBindError:
      return "memory window bind error";
    case CompletionStatus::kBadResponse:
      return "bad response";
    case CompletionStatus::kLocalAccessError:
      return "local access error";
    case CompletionStatus::kRemoteInvalidRequest:
      return "remote invalid request";
    case CompletionStatus::kRemoteAccessError:
      return "remote access error";
    case CompletionStatus::kRemoteOperationError:
      return "remote operation error";
    case CompletionStatus::kRetryExceeded:
      return "transport retries exceeded";
    case CompletionStatus::kRnrRetryExceeded:
      return "receiver-not-ready retries exceeded";
    case CompletionStatus::kGeneralError:
      return "general error";
  }
  return "unknown status";
}

const char* to_string(AsyncEventType type) {
  switch (type) {
    case AsyncEventType::kCqError:
      return "CQ error";
    case AsyncEventType::kQpFatal:
      return "QP fatal";
    case AsyncEventType::kQpRequestError:
      return "QP request error";
    case AsyncEventType::kQpAccessError:
      return "QP access error";
    case AsyncEventType::kCommunicationEstablished:
      return "communication established";
    case AsyncEventType::kSqDrained:
      return "send queue drained";
    case AsyncEventType::kLastWqeReached:
      return "last receive of the SRQ reached";
    case AsyncEventType::kSrqLimitReached:
      return "SRQ limit reached";
    case AsyncEventType::kSrqError:
      return "SRQ error";
    case AsyncEventType::kPortActive:
      return "port active";
    case AsyncEventType::kPortError:
      return "port error";
    case AsyncEventType::kGidChange:
      return "GID table changed";
    case AsyncEventType::kDeviceFatal:
      return "device fatal";
  }
  return "unknown event";
}

}  // namespace farverbs::model
