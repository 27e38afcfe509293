//! Resource names are bytes; this file shows them in text and in JSON without losing any.

use serde_json::{Map, Value};

/// The name for people: as it is if it is printable text, otherwise with its odd bytes escaped.
pub(crate) fn show(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        Ok(_) | Err(_) => name.escape_ascii().to_string(),
    }
}

/// Puts `field` into `object` if the bytes are UTF-8, `field_base64` otherwise.
pub(crate) fn put(object: &mut Map<String, Value>, field: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(field.to_owned(), Value::from(text)),
        Err(_) => object.insert(format!("{field}_base64"), Value::from(base64(bytes))),
    };
}

/// Standard base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = (0..3).fold(0u32, |sum, i| {
            sum << 8 | u32::from(chunk.get(i).copied().unwrap_or(0))
        });
        for sextet in 0..4 {
            let index = usize::try_from(group >> (18 - 6 * sextet) & 63).unwrap_or_default();
            let padded = sextet > chunk.len();
            text.push(if padded {
                '='
            } else {
                char::from(ALPHABET[index])
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_follows_the_vectors_of_rfc_4648() {
        for (input, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(input.as_bytes()), expected);
        }
        assert_eq!(base64(&[0x00, 0xff, 0x0a, 0x0d, 0x20]), "AP8KDSA=");
    }

    #[test]
    fn names_are_shown_without_losing_a_byte() {
        assert_eq!(show("payment:4821 é".as_bytes()), "payment:4821 é");
        assert_eq!(show(&[0x00, 0xff, b'a', b'\n']), r"\x00\xffa\n");
    }

    #[test]
    fn names_that_are_no_text_get_a_field_of_their_own() {
        let mut object = Map::new();
        put(&mut object, "resource", b"plain");
        put(&mut object, "token", &[0xff]);
        assert_eq!(
            Value::Object(object).to_string(),
            r#"{"resource":"plain","token_base64":"/w=="}"#
        );
    }
}
