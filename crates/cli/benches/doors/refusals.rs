//! The uninformative refusal: one answer for every cause, and how long each cause takes to get it.

use crate::operator::Operator;
use crate::plane::Plane;
use crate::rest::{Way, connect, post};
use crate::wire::Error;
use bytes::Bytes;
use pki::agent_key::HostKey;
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

pub async fn measure(rounds: usize) -> Result<(), Error> {
    let plane = Plane::start(None).map_err(|error| error.to_string())?;
    let mut operator = Operator::connect(&plane).await?;
    operator.ask("PUT", "/v1/policy", json!({ "key": "failures.per_minute", "value": "0" })).await?;
    let csr = HostKey::generate()?.csr_pem()?;
    let bundle = std::fs::read(plane.data().join("ca/bundle.pem"))?;
    let tls = Arc::new(Way::Probectl.tls(&bundle)?);
    let address = plane.url.trim_start_matches("https://").to_owned();
    let causes = causes(&mut operator, &address, &tls, &csr).await?;
    let mut times: Vec<Vec<f64>> = causes.iter().map(|_| Vec::with_capacity(rounds)).collect();
    let mut connection = connect(&address, tls.clone()).await?;
    let mut words: Option<Bytes> = None;
    for round in 0..rounds {
        // A stranger's connection lasts a minute at most.
        if round % 500 == 499 {
            connection = connect(&address, tls.clone()).await?;
        }
        for ((cause, token), times) in causes.iter().zip(&mut times) {
            let body = Way::Probectl.request(0, token.clone(), &csr);
            let began = Instant::now();
            let (status, answer) = post(&mut connection, "/enroll/agent", body).await?;
            times.push(began.elapsed().as_secs_f64() * 1e6);
            let first = words.get_or_insert_with(|| answer.clone());
            if status != 401 || *first != answer {
                return Err(format!("{cause} is told apart: {status} {answer:?}").into());
            }
        }
    }
    println!("| cause | p10 | p50 | p90 | p99 |\n|---|---|---|---|---|");
    for ((cause, _), times) in causes.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let at = |part: f64| times.get((times.len() as f64 * part) as usize).copied().unwrap_or_default();
        println!("| {cause} | {:.0} | {:.0} | {:.0} | {:.0} |", at(0.1), at(0.5), at(0.9), at(0.99));
    }
    Ok(())
}

/// Every way in which a token can be no good.
async fn causes(
    operator: &mut Operator,
    address: &str,
    tls: &Arc<rustls::ClientConfig>,
    csr: &str,
) -> Result<Vec<(&'static str, String)>, Error> {
    let door = json!({ "door": "probectl" });
    let (_, expired) = operator.token(json!({ "door": "probectl", "expires": "10s" })).await?;
    let (_, used) = operator.token(door.clone()).await?;
    Way::Probectl.enroll(address, tls.clone(), Way::Probectl.request(0, used.clone(), csr)).await?;
    let (id, revoked) = operator.token(door).await?;
    operator.ask("DELETE", &format!("/v1/tokens/{id}"), json!({})).await?;
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    Ok(vec![
        ("unknown", format!("pjt_{}", "ab".repeat(32))),
        ("malformed", "not a token!".to_owned()),
        ("expired", expired),
        ("used", used),
        ("revoked", revoked),
    ])
}
