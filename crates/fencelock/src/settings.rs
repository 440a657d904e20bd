/// Setters that pass a setting to the field `$inner`, which has a setter of the same name.
macro_rules! settings {
    ($inner:ident: $($(#[$doc:meta])+ $name:ident($($value:ident: $type:ty),*);)+) => {
        $(
            $(#[$doc])+
            pub fn $name(mut self, $($value: $type),*) -> Self {
                self.$inner = self.$inner.$name($($value),*);
                self
            }
        )+
    };
}

pub(crate) use settings;
