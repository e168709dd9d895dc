//! Values of Parquet and Arrow columns as JSON, for the fields that come with a prompt.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use parquet::record::{Field, Row};

/// The columns of a row, but for these. Columns of bytes are left out.
pub(super) fn of_parquet_row(row: &Row, but: &[&str]) -> String {
    let others = row
        .get_column_iter()
        .filter(|(name, field)| !but.contains(&name.as_str()) && !matches!(field, Field::Bytes(_)));
    object(others.map(|(name, field)| (name.as_str(), of_parquet(field))))
}

/// The columns of each row, but for these. Columns whose type JSON does not have are left out.
pub(super) fn of_arrow_rows(batch: &RecordBatch, rows: Range<usize>, but: &[&str]) -> Vec<String> {
    let schema = batch.schema();
    let columns: Vec<_> = schema
        .fields()
        .iter()
        .zip(batch.columns())
        .filter(|(field, _)| !but.contains(&field.name().as_str()))
        .collect();
    let of_row = |row: usize| {
        object(columns.iter().filter_map(|(field, array)| {
            of_arrow(array, row).map(|value| (field.name().as_str(), value))
        }))
    };
    rows.map(of_row).collect()
}

fn of_parquet(field: &Field) -> String {
    match field {
        Field::Bool(value) => value.to_string(),
        Field::Byte(value) => value.to_string(),
        Field::Short(value) => value.to_string(),
        Field::Int(value) => value.to_string(),
        Field::Long(value) => value.to_string(),
        Field::UByte(value) => value.to_string(),
        Field::UShort(value) => value.to_string(),
        Field::UInt(value) => value.to_string(),
        Field::ULong(value) => value.to_string(),
        Field::Float16(value) => number(f64::from(*value)),
        Field::Float(value) => short_number(*value),
        Field::Double(value) => number(*value),
        Field::Str(text) => string(text),
        Field::Group(row) => {
            object(row.get_column_iter().map(|(name, field)| (name.as_str(), of_parquet(field))))
        }
        Field::ListInternal(values) => array(values.elements().iter().map(of_parquet)),
        Field::MapInternal(map) => array(
            map.entries()
                .iter()
                .map(|(key, value)| array([of_parquet(key), of_parquet(value)].into_iter())),
        ),
        Field::Null | Field::Bytes(_) => "null".to_owned(),
        // Dates, times and decimals, as they are written.
        other => string(&other.to_string()),
    }
}

/// Nothing for types that JSON does not have.
fn of_arrow(values: &dyn Array, row: usize) -> Option<String> {
    if values.is_null(row) || *values.data_type() == DataType::Null {
        return Some("null".to_owned());
    }
    macro_rules! value {
        ($type:ty) => {
            values.as_primitive::<$type>().value(row)
        };
    }
    let of_all = |values: &dyn Array| {
        let all: Option<Vec<_>> = (0..values.len()).map(|row| of_arrow(values, row)).collect();
        all.map(|all| array(all.into_iter()))
    };
    Some(match values.data_type() {
        DataType::Boolean => values.as_boolean().value(row).to_string(),
        DataType::Int8 => value!(Int8Type).to_string(),
        DataType::Int16 => value!(Int16Type).to_string(),
        DataType::Int32 => value!(Int32Type).to_string(),
        DataType::Int64 => value!(Int64Type).to_string(),
        DataType::UInt8 => value!(UInt8Type).to_string(),
        DataType::UInt16 => value!(UInt16Type).to_string(),
        DataType::UInt32 => value!(UInt32Type).to_string(),
        DataType::UInt64 => value!(UInt64Type).to_string(),
        DataType::Float16 => number(f64::from(value!(Float16Type))),
        DataType::Float32 => short_number(value!(Float32Type)),
        DataType::Float64 => number(value!(Float64Type)),
        DataType::Utf8 => string(values.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => string(values.as_string::<i64>().value(row)),
        DataType::Utf8View => string(values.as_string_view().value(row)),
        DataType::List(_) => of_all(&values.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => of_all(&values.as_list::<i64>().value(row))?,
        DataType::FixedSizeList(..) => of_all(&values.as_fixed_size_list().value(row))?,
        DataType::Struct(fields) => {
            let columns = values.as_struct().columns();
            let members = fields.iter().zip(columns).filter_map(|(field, column)| {
                of_arrow(column, row).map(|value| (field.name().as_str(), value))
            });
            object(members)
        }
        _ => return None,
    })
}

fn object<'a>(members: impl Iterator<Item = (&'a str, String)>) -> String {
    let members: Vec<_> =
        members.map(|(name, value)| format!("{}:{value}", string(name))).collect();
    format!("{{{}}}", members.join(","))
}

fn array(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(","))
}

fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// JSON has no infinity and no NaN: they are null.
fn number(value: f64) -> String {
    serde_json::Value::from(value).to_string()
}

/// With no more digits than 32 bits need.
fn short_number(value: f32) -> String {
    if value.is_finite() { format!("{value:?}") } else { "null".to_owned() }
}
