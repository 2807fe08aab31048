//! Places on the earth, and how long the way to a place takes.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Faults, Result};

const EARTH_RADIUS_KM: f64 = 6371.0;
/// Half of the earth's circumference: an area this wide is everywhere.
pub const RADIUS_KM_MAX: u32 = 20_037;

/// An angle in millionths of a degree, written as a plain number of degrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, utoipa::ToSchema)]
#[schema(value_type = f64, example = 48.137)]
pub struct Degrees(pub i64);

impl Degrees {
    pub fn new(degrees: f64) -> Self {
        Self((degrees * 1e6).round() as i64)
    }

    pub fn get(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl fmt::Display for Degrees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }
}

impl Serialize for Degrees {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.get())
    }
}

impl<'de> Deserialize<'de> for Degrees {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let degrees = f64::deserialize(deserializer)?;
        if !degrees.is_finite() || degrees.abs() > 360.0 {
            return Err(serde::de::Error::custom(format!("{degrees} is not an angle in degrees")));
        }
        Ok(Self::new(degrees))
    }
}

/// A circle on the earth. The place of one node has radius 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Area {
    pub latitude: Degrees,
    pub longitude: Degrees,
    #[serde(default)]
    pub radius_km: u32,
}

impl Area {
    pub fn validate(&self) -> Result<()> {
        let mut faults = Faults::default();
        if self.latitude.get().abs() > 90.0 {
            faults.add("latitude", "latitude must be -90 to 90 degrees");
        }
        if self.longitude.get().abs() > 180.0 {
            faults.add("longitude", "longitude must be -180 to 180 degrees");
        }
        if self.radius_km > RADIUS_KM_MAX {
            faults.add("radius_km", format!("radius_km must be at most {RADIUS_KM_MAX}"));
        }
        faults.done()
    }

    /// Between the two centres, along the great circle.
    pub fn distance_km(&self, other: &Self) -> f64 {
        let (lat1, lat2) = (self.latitude.get().to_radians(), other.latitude.get().to_radians());
        let dlat = lat2 - lat1;
        let dlon = (other.longitude.get() - self.longitude.get()).to_radians();
        let a = (dlat / 2.0).sin().powi(2) + lat1.cos() * lat2.cos() * (dlon / 2.0).sin().powi(2);
        2.0 * EARTH_RADIUS_KM * a.sqrt().min(1.0).asin()
    }

    /// Whether the two have a point in common.
    pub fn touches(&self, other: &Self) -> bool {
        self.distance_km(other) <= f64::from(self.radius_km) + f64::from(other.radius_km)
    }

    /// A circle around this one's centre that holds both.
    #[must_use]
    pub fn hull(&self, other: &Self) -> Self {
        let reach = self.distance_km(other) + f64::from(other.radius_km);
        let radius_km = (reach.ceil() as u32).max(self.radius_km).min(RADIUS_KM_MAX);
        Self { radius_km, ..*self }
    }
}

/// The measured way to a place, there and back, in microseconds: the shortest and the longest
/// among those it stands for. Of a node both are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Leg {
    pub min_us: u32,
    pub max_us: u32,
}

impl Leg {
    pub const fn of(us: u32) -> Self {
        Self { min_us: us, max_us: us }
    }

    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self { min_us: self.min_us.min(other.min_us), max_us: self.max_us.max(other.max_us) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(latitude: f64, longitude: f64, radius_km: u32) -> Area {
        Area { latitude: Degrees::new(latitude), longitude: Degrees::new(longitude), radius_km }
    }

    #[test]
    fn distances_are_those_of_the_earth() {
        let (munich, berlin) = (at(48.137, 11.575, 0), at(52.52, 13.405, 0));
        let km = munich.distance_km(&berlin);
        assert!((500.0..510.0).contains(&km), "{km}");
        assert!(!at(48.137, 11.575, 400).touches(&berlin));
        assert!(at(48.137, 11.575, 400).touches(&at(52.52, 13.405, 110)));
        assert!(munich.hull(&berlin).touches(&berlin));
        // Over the date line, and from pole to pole.
        assert!(at(0.0, 179.9, 0).distance_km(&at(0.0, -179.9, 0)) < 23.0);
        assert!(at(90.0, 0.0, RADIUS_KM_MAX).touches(&at(-90.0, 0.0, 0)));
    }
}
