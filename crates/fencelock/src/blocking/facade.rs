//! Blocking methods, declared as those of the async type.

use super::OnThread;

/// What the blocking API returns for a value of the async API.
pub(super) trait Facade<A> {
    fn of(value: OnThread<A>) -> Self;
}

/// What sends no requests is the same in both.
impl<T> Facade<T> for T {
    fn of(value: OnThread<T>) -> T {
        value.inner
    }
}

impl<T> Facade<T> for OnThread<T> {
    fn of(value: Self) -> Self {
        value
    }
}

impl<T> Facade<Option<T>> for Option<OnThread<T>> {
    fn of(OnThread { inner, thread }: OnThread<Option<T>>) -> Self {
        inner.map(|inner| OnThread { inner, thread })
    }
}

/// Methods of a blocking type, each declared as the method of the async type that it calls, to which its documentation links. A
/// method that is declared as `async` blocks, with the errors of the async one; its future runs on the thread of the client, so a
/// borrowed argument says how to own it, and how to pass it on: `seen: &Holding = seen.clone() => &seen`.
macro_rules! facade {
    (@of $type:ident $name:ident) => {
        concat!("the async [`", stringify!($type), "::", stringify!($name), "`](crate::", stringify!($type), "::", stringify!($name), ").")
    };
    (@pass $arg:ident) => { $arg };
    (@pass $arg:ident $pass:expr) => { $pass };

    ($type:ident:) => {};

    ($type:ident: $(#[$doc:meta])* pub async fn $name:ident(
        self $(, $arg:ident: $kind:ty $(= $own:expr $(=> $pass:expr)?)?)* $(,)?
    ) -> Result<$ok:ty, Error>; $($rest:tt)*) => {
        $(#[$doc])*
        ///
        /// # Errors
        #[doc = concat!("Those of ", facade!(@of $type $name))]
        pub fn $name(self $(, $arg: $kind)*) -> Result<$ok, Error> {
            $($(let $arg = $own;)?)*
            self.call(async move |inner| inner.$name($(facade!(@pass $arg $($($pass)?)?)),*).await).map($crate::blocking::Facade::of)
        }

        facade! { $type: $($rest)* }
    };

    ($type:ident: $(#[$doc:meta])* pub async fn $name:ident(
        &self $(, $arg:ident: $kind:ty $(= $own:expr $(=> $pass:expr)?)?)* $(,)?
    ) -> Result<$ok:ty, Error>; $($rest:tt)*) => {
        $(#[$doc])*
        ///
        /// # Errors
        #[doc = concat!("Those of ", facade!(@of $type $name))]
        pub fn $name(&self $(, $arg: $kind)*) -> Result<$ok, Error> {
            $($(let $arg = $own;)?)*
            let this = self.clone();
            this.call(async move |inner| inner.$name($(facade!(@pass $arg $($($pass)?)?)),*).await).map($crate::blocking::Facade::of)
        }

        facade! { $type: $($rest)* }
    };

    ($type:ident: $(#[$doc:meta])* pub fn $name:ident(&self) -> Result<$ok:ty, Error>; $($rest:tt)*) => {
        $(#[$doc])*
        ///
        /// # Errors
        #[doc = concat!("Those of ", facade!(@of $type $name))]
        pub fn $name(&self) -> Result<$ok, Error> {
            self.inner.$name()
        }

        facade! { $type: $($rest)* }
    };

    ($type:ident: $(#[$doc:meta])* pub fn $name:ident(&self) -> $return:ty; $($rest:tt)*) => {
        $(#[$doc])*
        ///
        #[doc = concat!("See ", facade!(@of $type $name))]
        pub fn $name(&self) -> $return {
            self.inner.$name()
        }

        facade! { $type: $($rest)* }
    };

    ($type:ident: $(#[$doc:meta])* pub fn $name:ident(&self $(, $arg:ident: $kind:ty)*) -> $return:ty; $($rest:tt)*) => {
        $(#[$doc])*
        ///
        #[doc = concat!("See ", facade!(@of $type $name))]
        pub fn $name(&self $(, $arg: $kind)*) -> $return {
            $crate::blocking::Facade::of(self.beside(self.inner.$name($($arg),*)))
        }

        facade! { $type: $($rest)* }
    };

    ($type:ident: $(#[$doc:meta])* pub fn $name:ident(self $(, $arg:ident: $kind:ty)*) -> Self; $($rest:tt)*) => {
        $(#[$doc])*
        ///
        #[doc = concat!("See ", facade!(@of $type $name))]
        pub fn $name(self $(, $arg: $kind)*) -> Self {
            self.map(|inner| inner.$name($($arg),*))
        }

        facade! { $type: $($rest)* }
    };
}
pub(super) use facade;
