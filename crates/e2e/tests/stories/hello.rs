//! The example of the README, as a newcomer meets it.

use myriad_e2e::world::repository;
use myriad_e2e::{World, authority::Authority};

fn example(name: &str) -> String {
    std::fs::read_to_string(repository("examples/hello").join(name)).expect("the example")
}

#[tokio::test]
async fn the_example_answers_and_an_edit_changes_the_answer() {
    let hello = example("hello.yaml");
    let files = [
        ("hello.yaml", hello.clone()),
        ("certificate.yaml", example("certificate.yaml")),
    ];
    let world = World::serve_with(Authority::new(), &files, &[]).await;

    let curl = world.curl("https://hello.localhost/").args(&["-k"]);
    let answer = curl.ask().await;
    assert_eq!(
        (answer.status, answer.body.trim_end()),
        (200, "Hello from Myriad"),
        "{answer:?}"
    );

    world.write(
        "hello.yaml",
        &hello.replace("Hello from Myriad", "Good morning"),
    );
    let asked = myriad_e2e::world::eventually(async || {
        let answer = world
            .curl("https://hello.localhost/")
            .args(&["-k"])
            .ask()
            .await;
        (answer.body.trim_end() == "Good morning").then_some(answer)
    });
    asked.await.expect("the edited answer");
    assert!(
        world.findings().await.is_empty(),
        "{:?}",
        world.findings().await
    );
    world.stop().await;
}
