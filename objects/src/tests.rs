//! What is written is there once and as a whole, whatever goes wrong on the way.

use std::sync::atomic::AtomicBool;

use bytes::Bytes;

use crate::fake::{Fake, Fault, HASTY, On, PATIENT};
use crate::{Created, Error, Upload};

const SERVICES: [&str; 2] = ["gs://bucket/at", "s3://bucket/at"];

static GO_ON: AtomicBool = AtomicBool::new(false);

fn part(number: u8) -> Bytes {
    Bytes::from(vec![number; 70_000])
}

#[test]
fn an_object_in_parts_is_there_as_a_whole_in_spite_of_faults() {
    for service in SERVICES {
        let fake = Fake::start();
        let (store, address) = fake.store(service, PATIENT);
        fake.fault(On::Part, Fault::Status(503, ""), 2);
        fake.fault(On::Part, Fault::ResetAfter(30_000), 2);
        fake.fault(On::Part, Fault::LoseAnswer, 1);
        fake.fault(On::Complete, Fault::LoseAnswer, 1);
        let upload = Upload::begin(&store, address.key()).unwrap();
        for number in [2, 0, 1] {
            upload.part(number, &part(number as u8), &GO_ON).unwrap();
        }
        assert_eq!(fake.get("at"), None, "nothing before the end");
        upload.complete().unwrap();
        let expected: Vec<u8> = (0..3).flat_map(part).collect();
        assert_eq!(fake.get("at").unwrap(), expected);
        let mut some = vec![0; 70_001];
        store.get_range("at", 69_999..140_000, &mut some).unwrap();
        assert_eq!(some, expected[69_999..140_000]);
        assert_eq!(fake.uploads(), 0);
    }
}

#[test]
fn an_upload_that_is_given_up_leaves_nothing() {
    let fake = Fake::start();
    let (store, address) = fake.store(SERVICES[0], PATIENT);
    let upload = Upload::begin(&store, address.key()).unwrap();
    upload.part(0, &part(0), &GO_ON).unwrap();
    upload.abort();
    assert_eq!((fake.uploads(), fake.keys().len()), (0, 0));
}

#[test]
fn an_object_is_created_once() {
    for service in SERVICES {
        let fake = Fake::start();
        let (store, _) = fake.store(service, PATIENT);
        let create = |bytes: &'static str| store.create("once", &Bytes::from(bytes)).unwrap();
        fake.fault(On::Put, Fault::LoseAnswer, 1);
        assert_eq!(create("mine"), Created::Here, "the first answer was lost");
        assert_eq!(create("mine"), Created::Here, "it is what it should be");
        assert_eq!(create("another"), Created::Exists);
        assert_eq!(store.get("once").unwrap(), "mine");
        store.delete("once").unwrap();
        store.delete("once").unwrap();
        let gone = store.get("once").unwrap_err();
        assert!(matches!(gone, Error::NotFound { .. }), "{gone}");
        assert_eq!(create("another"), Created::Here);
    }
}

#[test]
fn answers_that_break_off_are_asked_for_again() {
    let fake = Fake::start();
    fake.put("a", part(7));
    let (store, _) = fake.store(SERVICES[0], PATIENT);
    fake.fault(On::Get, Fault::CutAfter(1_000), 2);
    fake.fault(On::Get, Fault::Status(503, ""), 2);
    let mut all = vec![0; 70_000];
    store.get_range("a", 0..70_000, &mut all).unwrap();
    assert_eq!(all, part(7));
    let error = store.get_range("a", 69_000..71_000, &mut vec![0; 2_000]).unwrap_err();
    assert!(error.to_string().contains("1000 bytes came of the 2000 from 69000 on"), "{error}");
}

#[test]
fn a_store_that_refuses_is_not_asked_forever() {
    let fake = Fake::start();
    fake.fault(On::Any, Fault::Status(403, "<Error><Code>AccessDenied</Code></Error>"), 99);
    let (store, _) = fake.store(SERVICES[1], PATIENT);
    let began = std::time::Instant::now();
    let error = store.put("a", part(1)).unwrap_err().to_string();
    assert!(error.contains("access denied (AccessDenied)"), "{error}");
    assert!(began.elapsed() < PATIENT.outlast / 2);
    fake.heal();
    fake.fault(On::Any, Fault::Silent, 99);
    let (store, _) = fake.store(SERVICES[1], HASTY);
    let error = store.put("a", part(1)).unwrap_err().to_string();
    assert!(error.contains("does not answer"), "{error}");
}
