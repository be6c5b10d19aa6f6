//! Tokens of HTTP (RFC 9110, section 5.6.2): names of fields and cookies, and methods.

/// Whether a byte may stand in a token.
pub fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a text is a token.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_token_byte)
}

/// Whether a text is a token in lower case, as names of header fields are kept.
pub fn is_lower_token(text: &str) -> bool {
    is_token(text) && !text.bytes().any(|byte| byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::{is_lower_token, is_token, is_token_byte};

    #[test]
    fn a_token_has_letters_digits_and_fifteen_signs() {
        let bytes: Vec<u8> = (0..=255).filter(|byte| is_token_byte(*byte)).collect();
        let text = String::from_utf8(bytes).unwrap();
        let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ^_`abcdefghijklmnopqrstuvwxyz|~";
        assert_eq!(text, format!("!#$%&'*+-.0123456789{letters}"));
        for text in ["", "a b", "a\r\nb", "a:b", "a;b", "a,b", "a=b", "ä", "a\0"] {
            assert!(!is_token(text), "{text:?}");
        }
        assert!(is_token("X-a") && is_token("*"));
        assert!(is_lower_token("x-a") && !is_lower_token("X-a") && !is_lower_token(""));
    }
}
