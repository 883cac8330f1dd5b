//! The operator's tool and the control plane in one program.
