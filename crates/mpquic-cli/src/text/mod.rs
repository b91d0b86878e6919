//! Texts as users, URLs and terminals spell them.

pub(crate) mod hex;
pub(crate) mod json;
pub(crate) mod percent;
pub(crate) mod stamp;
pub(crate) mod times;
pub(crate) mod url;
