use super::*;

fn lines(file: &[u8]) -> Vec<(u64, Result<RegisterNodeRequest, String>)> {
    // A small buffer, so that lines cross its border.
    let mut file = BatchFile::new(std::io::BufReader::with_capacity(7, file));
    let mut found = Vec::new();
    while let Some(line) = file.next().unwrap_or_else(|error| panic!("{:?}", error.message())) {
        found.push((line.number, line.machine));
    }
    found
}

fn refusal(file: &[u8]) -> String {
    let mut file = BatchFile::new(file);
    loop {
        match file.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it was read to its end"),
            Err(error) => return error.message().unwrap_or_default().to_owned(),
        }
    }
}

fn machine(id: &str, macs: &[&str], serial: Option<&str>) -> RegisterNodeRequest {
    RegisterNodeRequest {
        node_id: id.to_owned(),
        mac: macs.iter().map(|mac| (*mac).to_owned()).collect::<Vec<_>>().into(),
        bmc_serial: serial.map(str::to_owned),
        ..RegisterNodeRequest::default()
    }
}

#[test]
fn a_table_is_read_as_spreadsheets_write_it() {
    let file = b"\xef\xbb\xbfnode_id,mac,bmc_serial\r\nn1,02:00:00:00:00:01,S1\r\n\r\n ,, \r\n\"n2\",\"02:00:00:00:00:02; 02:00:00:00:00:03\",\"S \"\"2\"\", x\"\r\nn3,02:00:00:00:00:04";
    let expected = vec![
        (2, Ok(machine("n1", &["02:00:00:00:00:01"], Some("S1")))),
        (5, Ok(machine("n2", &["02:00:00:00:00:02", "02:00:00:00:00:03"], Some("S \"2\", x")))),
        (6, Ok(machine("n3", &["02:00:00:00:00:04"], None))),
    ];
    assert_eq!(lines(file), expected);
}

#[test]
fn columns_may_stand_in_any_order() {
    let file = b"vcluster,MAC,node_id,tpm_ek_hash,system_uuid\nml,02:00:00:00:00:01,n1,ab,u-1\n";
    let expected = RegisterNodeRequest {
        vcluster: Some("ml".to_owned()),
        tpm_ek_hash: Some("ab".to_owned()),
        system_uuid: Some("u-1".to_owned()),
        ..machine("n1", &["02:00:00:00:00:01"], None)
    };
    assert_eq!(lines(file), [(2, Ok(expected))]);
}

#[test]
fn json_lines_begin_at_line_1() {
    let file = b"{\"node_id\":\"n1\",\"mac\":\"02:00:00:00:00:01\"}\n\n{\"node_id\":\"n2\",\"mac\":[\"a\",\"b\"],\"bmc_serial\":\"S\"}\n{\"node_id\":\"n3\",\"macs\":[]}\nnonsense\n";
    let found = lines(file);
    assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 3, 4, 5]);
    assert_eq!(found[1].1, Ok(machine("n2", &["a", "b"], Some("S"))));
    assert!(found[2].1.as_ref().is_err_and(|fault| fault.contains("macs")), "{:?}", found[2]);
    assert!(found[3].1.is_err());
}

#[test]
fn a_line_that_cannot_be_read_is_a_fault_of_its_own() {
    let long = format!("n9,{}", "x".repeat(LINE_BYTES));
    let file = [
        b"node_id,mac\nn1,\xff\xfe\n".as_slice(),
        long.as_bytes(),
        b"\nn2,\"open\nn3,a,b\nn4,a\x1b[2J\n,02:00:00:00:00:05\nn5,\"a\"b\nn6,a\"b\nn7,02:00:00:00:00:07\n",
    ]
    .concat();
    let found = lines(&file);
    let faults = [
        (2, "not UTF-8"),
        (3, "longer than 8192 bytes"),
        (4, "not closed"),
        (5, "3 fields, and the header 2"),
        (6, "control characters"),
        (7, "no node_id"),
        (8, "comma is missing"),
        (9, "inside of a field"),
    ];
    assert_eq!(found.len(), faults.len() + 1);
    for ((number, read), (line, fault)) in found.iter().zip(faults) {
        assert_eq!(*number, line);
        assert!(read.as_ref().is_err_and(|found| found.contains(fault)), "{line}: {read:?}");
    }
    assert_eq!(found.last(), Some(&(10, Ok(machine("n7", &["02:00:00:00:00:07"], None)))));
}

#[test]
fn a_file_without_its_header_is_refused_as_a_whole() {
    for (file, fault) in [
        (b"".as_slice(), "empty"),
        (b"\n\n", "empty"),
        (b"n1,02:00:00:00:00:01\n", "unknown column \"n1\""),
        (b"node_id;mac\n", "unknown column \"node_id;mac\""),
        (b"node_id,mac,mac\n", "twice"),
        (b"node_id,bmc_serial\n", "lacks"),
        (b"\xff\xfen\0o\0", "not UTF-8"),
    ] {
        let refusal = refusal(file);
        assert!(refusal.contains(fault), "{refusal}");
    }
}

#[test]
fn the_bytes_of_all_lines_are_those_of_the_file() {
    let file = b"node_id,mac\n\nn1,a\r\n\nn2,b";
    let mut read = BatchFile::new(file.as_slice());
    let mut bytes = 0;
    while let Some(line) = read.next().unwrap() {
        bytes += line.bytes;
    }
    assert_eq!(bytes, file.len() as u64);
}
