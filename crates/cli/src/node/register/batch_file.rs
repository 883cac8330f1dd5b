//! A file of machines, read line by line: CSV with a header, or JSON lines. What cannot be read is a fault of its line and
//! of no other, and no line takes more memory than it may be long.

use crate::error::CommandError;
use api::rest::nodes::RegisterNodeRequest;
use std::io::{BufRead, ErrorKind};

/// No machine needs as much.
const LINE_BYTES: usize = 8 * 1024;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const SHAPES: &str = "the file is CSV with the header node_id,mac,bmc_serial,vcluster (system_uuid and tpm_ek_hash may be added, all but \
                      node_id and mac left out), or has a JSON object with these fields on each line";

/// A column of the CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    NodeId,
    Mac,
    BmcSerial,
    SystemUuid,
    TpmEkHash,
    Vcluster,
}

impl Column {
    fn parse(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "node_id" => Some(Column::NodeId),
            "mac" => Some(Column::Mac),
            "bmc_serial" => Some(Column::BmcSerial),
            "system_uuid" => Some(Column::SystemUuid),
            "tpm_ek_hash" => Some(Column::TpmEkHash),
            "vcluster" => Some(Column::Vcluster),
            _ => None,
        }
    }
}

enum FileShape {
    Columns(Vec<Column>),
    JsonLines,
}

/// A line with its number, the header included.
#[derive(Debug, PartialEq, Eq)]
pub struct NumberedLine {
    pub number: u64,
    /// How many bytes it has in the file.
    pub bytes: u64,
    /// The machine, or why the line cannot be read.
    pub machine: Result<RegisterNodeRequest, String>,
}

pub struct BatchFile<R> {
    input: R,
    shape: Option<FileShape>,
    /// Of the line that was read last.
    number: u64,
}

/// One line as it stands in the file.
enum RawLine {
    Bytes(Vec<u8>),
    TooLong,
}

impl<R: BufRead> BatchFile<R> {
    pub fn new(input: R) -> Self {
        Self { input, shape: None, number: 0 }
    }

    /// The next line that holds something. A header that is none is the end of it.
    pub fn next(&mut self) -> Result<Option<NumberedLine>, CommandError> {
        let mut bytes = 0;
        loop {
            let Some((raw, length)) = self.raw_line()? else {
                return if self.shape.is_some() { Ok(None) } else { Err(unusable("the file is empty")) };
            };
            bytes += length;
            self.number += 1;
            let text = match raw {
                RawLine::TooLong => Err(format!("the line is longer than {LINE_BYTES} bytes")),
                RawLine::Bytes(bytes) => {
                    String::from_utf8(bytes).map_err(|_| "the line is not UTF-8".to_owned())
                }
            };
            let text = text.and_then(|text| match text.chars().any(|c| c.is_control() && c != '\t') {
                true => Err("the line contains control characters".to_owned()),
                false => Ok(text),
            });
            let Some(shape) = &self.shape else {
                let first = text.map_err(|fault| unusable(&format!("line {}: {fault}", self.number)))?;
                if first.trim().is_empty() {
                    continue;
                }
                if first.trim_start().starts_with('{') {
                    self.shape = Some(FileShape::JsonLines);
                    return Ok(Some(NumberedLine { number: self.number, bytes, machine: object(&first) }));
                }
                self.shape = Some(FileShape::Columns(header(&first)?));
                continue;
            };
            let machine = match (text, shape) {
                (Err(fault), _) => Err(fault),
                (Ok(text), _) if text.trim().is_empty() => continue,
                (Ok(text), FileShape::JsonLines) => object(&text),
                (Ok(text), FileShape::Columns(columns)) => match row(columns, &text) {
                    // What spreadsheets leave of an emptied row.
                    Ok(None) => continue,
                    Ok(Some(machine)) => Ok(machine),
                    Err(fault) => Err(fault),
                },
            };
            return Ok(Some(NumberedLine { number: self.number, bytes, machine }));
        }
    }

    /// A line without its end, and its length with it. Of one that is too long only the end is looked for.
    fn raw_line(&mut self) -> Result<Option<(RawLine, u64)>, CommandError> {
        let (mut line, mut length, mut too_long) = (Vec::new(), 0_u64, false);
        loop {
            let available = match self.input.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(CommandError::fault("file", format!("the file cannot be read: {error}")));
                }
            };
            if available.is_empty() {
                break;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let piece = available.get(..end.unwrap_or(available.len())).unwrap_or_default();
            too_long |= line.len() + piece.len() > LINE_BYTES;
            if !too_long {
                line.extend_from_slice(piece);
            }
            let taken = piece.len() + usize::from(end.is_some());
            self.input.consume(taken);
            length += taken as u64;
            if end.is_some() {
                break;
            }
        }
        if length == 0 {
            return Ok(None);
        }
        if too_long {
            return Ok(Some((RawLine::TooLong, length)));
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if self.number == 0 && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(Some((RawLine::Bytes(line), length)))
    }
}

fn unusable(fault: &str) -> CommandError {
    CommandError::usage(fault, SHAPES)
}

fn header(text: &str) -> Result<Vec<Column>, CommandError> {
    let names = fields(text).map_err(|fault| unusable(&format!("line 1, the header: {fault}")))?;
    let mut columns = Vec::new();
    for name in names {
        let Some(column) = Column::parse(&name) else {
            return Err(unusable(&format!("the header names an unknown column {name:?}")));
        };
        if columns.contains(&column) {
            return Err(unusable(&format!("the header names the column {name:?} twice")));
        }
        columns.push(column);
    }
    if [Column::NodeId, Column::Mac].iter().all(|needed| columns.contains(needed)) {
        return Ok(columns);
    }
    Err(unusable("the header lacks the column node_id or mac"))
}

/// A row of the CSV; none if all of its fields are empty.
fn row(columns: &[Column], text: &str) -> Result<Option<RegisterNodeRequest>, String> {
    let fields = fields(text)?;
    if fields.iter().all(String::is_empty) {
        return Ok(None);
    }
    if fields.len() > columns.len() {
        return Err(format!("the line has {} fields, and the header {}", fields.len(), columns.len()));
    }
    let mut machine = RegisterNodeRequest::default();
    for (column, field) in columns.iter().zip(fields).filter(|(_, field)| !field.is_empty()) {
        match column {
            Column::NodeId => machine.node_id = field,
            Column::Mac => machine.mac = macs(&field).into(),
            Column::BmcSerial => machine.bmc_serial = Some(field),
            Column::SystemUuid => machine.system_uuid = Some(field),
            Column::TpmEkHash => machine.tpm_ek_hash = Some(field),
            Column::Vcluster => machine.vcluster = Some(field),
        }
    }
    if machine.node_id.is_empty() {
        return Err("the line has no node_id".to_owned());
    }
    Ok(Some(machine))
}

fn macs(field: &str) -> Vec<String> {
    field.split(';').map(str::trim).filter(|mac| !mac.is_empty()).map(str::to_owned).collect()
}

fn object(text: &str) -> Result<RegisterNodeRequest, String> {
    let machine: RegisterNodeRequest =
        serde_json::from_str(text).map_err(|error| format!("the line is not as expected: {error}"))?;
    if machine.node_id.is_empty() { Err("the line has no node_id".to_owned()) } else { Ok(machine) }
}

/// The fields of a line of CSV. A field in quotes may hold commas, and a quote as two; it ends on its line.
fn fields(text: &str) -> Result<Vec<String>, String> {
    let mut fields = Vec::new();
    let mut rest = text.trim();
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (field, after) = rest.split_at(end);
                if field.contains('"') {
                    return Err("a quote stands inside of a field that does not begin with one".to_owned());
                }
                (field.trim().to_owned(), after)
            }
        };
        fields.push(field);
        let after = after.trim_start();
        if after.is_empty() {
            return Ok(fields);
        }
        match after.strip_prefix(',') {
            Some(next) => rest = next.trim_start(),
            None => return Err("a comma is missing after a quoted field".to_owned()),
        }
    }
}

/// What stands before the closing quote, and what follows it.
fn quoted_field(text: &str) -> Result<(String, &str), String> {
    let (mut field, mut rest) = (String::new(), text);
    loop {
        let Some((before, after)) = rest.split_once('"') else {
            return Err("a quote is not closed on its line".to_owned());
        };
        field.push_str(before);
        match after.strip_prefix('"') {
            Some(next) => {
                field.push('"');
                rest = next;
            }
            None => return Ok((field.trim().to_owned(), after)),
        }
    }
}

#[cfg(test)]
mod tests;
