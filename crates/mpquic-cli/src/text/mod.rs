//! Texts in the spelling of users, URLs and terminals.

pub(crate) mod count;
pub(crate) mod hex;
pub(crate) mod json;
pub(crate) mod percent;
pub(crate) mod stamp;
pub(crate) mod times;
pub(crate) mod url;
