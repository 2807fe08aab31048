//! `banyan catalogue apply` against a cloud: all that is wrong by file and field, warnings, and what changed.

use std::path::Path;

use crate::support::{Cloud, says, text};

fn write(folder: &Path, path: &str, text: &str) -> String {
    let at = folder.join(path);
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    std::fs::write(&at, text).unwrap();
    at.display().to_string()
}

const TEMPLATE: &str = r#"{"name": "shelf", "defaults": {"services": ["book"], "provider": "banyan",
    "hardwaretype": "thin", "imagetype": "paper"}, "compatibility": {"services": ["book"]}}"#;

#[test]
fn a_catalogue_is_applied_whole_or_not_at_all() {
    let cloud = Cloud::shared();
    let folder = cloud.home.join("shelf");
    let apply = || cloud.run(&["catalogue", "apply", "-f", folder.to_str().unwrap()]);
    let thin = write(&folder, "hardwaretypes/thin.json", "{\"name\": \"thin\", \"providermap\": {}}");
    write(
        &folder,
        "imagetypes/paper.json",
        r#"{"name": "paper", "providermap": {"banyan": {"image": "x"}}}"#,
    );
    let broken = write(&folder, "services/book.json", "{\"name\": \"book\",");
    let shelf = write(&folder, "clustertemplates/shelf.json", TEMPLATE);
    let refused = apply();
    assert_eq!(refused.status.code(), Some(1));
    says(&text(&refused.stderr), &[&broken]);

    // Everything can be read, and two definitions cannot be.
    let service = r#"{"name": "book", "dependencies": {"install": {"requires": ["ink"]}},
        "provisioner": {"actions": {"install": {"type": "shell", "fields": {"code": "true"}}}}}"#;
    let book = write(&folder, "services/book.json", service);
    write(
        &folder,
        "clustertemplates/shelf.json",
        &TEMPLATE.replace("\"services\": [\"book\"]}", "\"services\": [\"pen\"]}"),
    );
    let refused = apply();
    assert_eq!(refused.status.code(), Some(1));
    says(
        &text(&refused.stderr),
        &[
            &book,
            "dependencies.install.requires",
            "'ink'",
            &shelf,
            "defaults.services",
            "service 'book' is the default",
        ],
    );
    assert!(!cloud.good(&["catalogue", "list"]).contains("shelf"), "nothing of it was taken");

    // The rest of it can be had, and what is left out is told.
    let some =
        cloud.run(&["catalogue", "apply", "-f", folder.to_str().unwrap(), "--keep-going", "--dry-run"]);
    assert_eq!(some.status.code(), Some(1));
    says(
        &text(&some.stdout),
        &["hardwaretypes/thin: would be created", "imagetypes/paper: would be created"],
    );
    assert!(!text(&some.stdout).contains("book") && !text(&some.stdout).contains("shelf"));
    says(&text(&some.stderr), &[&book, "'ink'", &shelf, "defaults.services"]);

    // What is misspelt is taken, and told.
    write(
        &folder,
        "services/book.json",
        &service.replace(
            ", \"dependencies\": {\"install\": {\"requires\": [\"ink\"]}}",
            ", \"descripton\": \"x\"",
        ),
    );
    write(&folder, "clustertemplates/shelf.json", TEMPLATE);
    write(
        &folder,
        "hardwaretypes/thin.json",
        r#"{"name": "thin", "providermap": {"banyan": {"flavor": "tiny"}}}"#,
    );
    let taken = apply();
    assert!(taken.status.success(), "{}", text(&taken.stderr));
    says(&text(&taken.stderr), &[&book, "descripton", "description"]);
    says(&text(&taken.stdout), &["services/book: created", "clustertemplates/shelf: created"]);
    assert!(!text(&taken.stderr).contains(&thin));
    let again = apply();
    assert_eq!((again.status.success(), text(&again.stdout).as_str()), (true, ""));
    write(
        &folder,
        "clustertemplates/shelf.json",
        &TEMPLATE.replace("\"shelf\",", "\"shelf\", \"description\": \"of books\","),
    );
    says(&text(&apply().stdout), &["clustertemplates/shelf: changed"]);
}
