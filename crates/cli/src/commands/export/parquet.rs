//! `--to parquet`: the recording's tables as Parquet files in a folder. Rows are written in groups of
//! bounded size, so that memory does not grow with the recording.

use std::{fs::File, path::Path, sync::Arc};

use anyhow::Context as _;
use parquet::{
    basic::{Compression, LogicalType, Repetition, Type as Physical},
    data_type::{BoolType, ByteArray, ByteArrayType, Int64Type},
    file::{
        metadata::KeyValue,
        properties::WriterProperties,
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    schema::types::Type,
};
use plimsoll_core::views::tables::{Column, Kind, Table, Tables, Value};

use super::target::{Content, Made, Target};
use crate::{
    files::{atomic_output::AtomicOutput, recordings::Process},
    options::cli::ExportArgs,
};

pub(super) const TARGET: Target =
    Target { word: "parquet", ending: ".parquet", is_folder: true, make };

/// The version of the schema. Columns only get added; it says when one changes its meaning.
const SCHEMA: &str = "1";
/// Rows that are held in memory at once.
const GROUP: usize = 1 << 17;

fn make(_: &Process, args: &ExportArgs) -> anyhow::Result<Made> {
    let device = args.device;
    let fill = move |process: &Process, output: &AtomicOutput, folder: &Path| {
        let tables = Tables::of(&process.recording, device)?;
        for table in tables.all() {
            let path = folder.join(format!("{}.parquet", table.name));
            write(&table, &path, output, process)
                .with_context(|| format!("cannot write {}.parquet", table.name))?;
        }
        Ok(())
    };
    Ok(Made { content: Content::Folder(Box::new(fill)), notes: Vec::new() })
}

fn write(
    table: &Table<'_>,
    path: &Path,
    output: &AtomicOutput,
    process: &Process,
) -> anyhow::Result<()> {
    let columns = table.columns.iter().map(field).collect::<anyhow::Result<Vec<_>>>()?;
    let schema = Type::group_type_builder(table.name).with_fields(columns).build()?;
    let about = |key: &str, value: &str| KeyValue::new(format!("plimsoll.{key}"), value.to_owned());
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("plimsoll {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(vec![
            about("schema", SCHEMA),
            about("recording", &process.name),
        ]))
        .build();
    let file = File::create_new(path)?;
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    for from in (0..table.rows).step_by(GROUP) {
        let to = table.rows.min(from + GROUP);
        let mut group = writer.next_row_group()?;
        let mut index = 0;
        while let Some(mut column) = group.next_column()? {
            output.go_on()?;
            fill(&mut column, table, index, from..to)?;
            column.close()?;
            index += 1;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

fn field(column: &Column) -> anyhow::Result<Arc<Type>> {
    let (physical, logical) = match column.kind {
        Kind::Int => (Physical::INT64, None),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Bool => (Physical::BOOLEAN, None),
    };
    let builder = Type::primitive_type_builder(column.name, physical)
        .with_logical_type(logical)
        .with_repetition(Repetition::OPTIONAL);
    Ok(Arc::new(builder.build()?))
}

/// Writes the rows `rows` of one column.
fn fill(
    writer: &mut SerializedColumnWriter<'_>,
    table: &Table<'_>,
    column: usize,
    rows: std::ops::Range<usize>,
) -> anyhow::Result<()> {
    // 1 where there is a value: Parquet calls it the definition level.
    let mut is_there: Vec<i16> = Vec::with_capacity(rows.len());
    let (mut ints, mut texts, mut bools) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let value = table.value(row, column);
        is_there.push((value != Value::Null).into());
        match value {
            Value::Null => {}
            Value::Int(it) => ints.push(it),
            Value::Text(it) => texts.push(ByteArray::from(it.as_bytes().to_vec())),
            Value::Bool(it) => bools.push(it),
        }
    }
    let levels = Some(is_there.as_slice());
    match table.columns[column].kind {
        Kind::Int => writer.typed::<Int64Type>().write_batch(&ints, levels, None)?,
        Kind::Text => writer.typed::<ByteArrayType>().write_batch(&texts, levels, None)?,
        Kind::Bool => writer.typed::<BoolType>().write_batch(&bools, levels, None)?,
    };
    Ok(())
}
