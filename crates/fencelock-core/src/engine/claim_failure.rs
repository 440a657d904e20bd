/// What the error of one of several claims means for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClaimFailure {
    /// Another client holds the key.
    Busy,
    /// The backend did not answer, and may answer a later claim.
    Silent,
    /// The backend grants nothing yet, or was silent for so long that a holder that was reported before may be gone.
    NotServing,
    /// Another claim would fail too.
    Refused,
}
