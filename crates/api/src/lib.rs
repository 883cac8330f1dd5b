//! Wire contracts: operator REST v1, agent gRPC v1, the error body and its codes.
